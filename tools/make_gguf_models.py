#!/usr/bin/env python3
"""Converts the small models of tests/data/models to GGUF with llama.cpp's own converter, without
tokenizers: tests/data/gguf. Run: python3 tools/make_gguf_models.py LLAMA_CPP_FOLDER"""
import contextlib
import pathlib
import runpy
import sys

MODELS = {"gemma2-tiny": "bf16", "llama2-bias-tiny": "f32", "llama31-tiny": "bf16",
          "phi3-long-tiny": "bf16", "qwen2-tiny": "bf16", "qwen3-tiny": "bf16"}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    source = pathlib.Path(sys.argv[1])
    sys.path[:0] = [str(source / "gguf-py"), str(source)]
    from conversion import base, gemma, llama, phi, qwen  # pylint: disable=import-error

    for module in (base, gemma, llama, phi, qwen):
        for value in list(vars(module).values()):
            if isinstance(value, type) and issubclass(value, base.TextModel):
                value.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("none")
    for name, kind in MODELS.items():
        out = root / "tests" / "data" / "gguf" / f"{name}.gguf"
        sys.argv = ["convert", str(root / "tests" / "data" / "models" / name), "--outfile",
                    str(out), "--outtype", kind, "--model-name", name]
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(source / "convert_hf_to_gguf.py"), run_name="__main__")


main()
