#!/usr/bin/env python3
"""Records how transformers handles add_bos_token and add_eos_token
(tests/text/bos_eos_flags_test.cpp).

    python tools/make_flag_cases.py       (once with transformers 4.57, once with transformers 5)

Writes tests/data/tokenizers/bos_eos_flags.json: for every combination of a tokenizer of that
folder, its class, the two flags and three post-processors, the ids that each major version gives
for one text with special tokens; null where it refuses. Transformers 4 rebuilds the post-processor
of its Llama classes from the flags; transformers 5 neither writes nor reads them where there is a
tokenizer.json.
"""

import itertools
import json
import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

import transformers  # noqa: E402

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizers"
OUT = FOLDER / "bos_eos_flags.json"
TEXT = "the water"
TOKENS = {
    "llama2": ("<s>", "</s>"),
    "llama3": ("<|begin_of_text|>", "<|end_of_text|>"),
}
CLASSES = [None, "LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"]
FLAGS = [None, True, False]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
PROCESSORS = {"own": None, "null": None, "bytes": BYTE_LEVEL}


def ids_of(name, tokenizer_class, add_bos, add_eos, processor):
    document = json.loads((FOLDER / f"{name}.json").read_text())
    if processor != "own":
        document["post_processor"] = PROCESSORS[processor]
    bos, eos = TOKENS[name]
    config = {"bos_token": bos, "eos_token": eos, "tokenizer_class": tokenizer_class}
    config.update(add_bos_token=add_bos, add_eos_token=add_eos)
    config = {key: value for key, value in config.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(json.dumps(document))
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config))
        Path(folder, "config.json").write_text(json.dumps({"model_type": "llama"}))
        try:
            return transformers.AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]
        except ValueError:
            return None


def main():
    version = transformers.__version__.split(".")[0]
    cases = json.loads(OUT.read_text())["cases"] if OUT.exists() else []
    known = {json.dumps(case["of"]): case for case in cases}
    for of in itertools.product(TOKENS, CLASSES, FLAGS, FLAGS, PROCESSORS):
        case = known.setdefault(json.dumps(of), {"of": list(of)})
        case[version] = ids_of(*of)
    lines = ",\n".join(json.dumps(case) for case in known.values())
    OUT.write_text(f'{{"text": {json.dumps(TEXT)}, "cases": [\n{lines}\n]}}\n')
    print(f"transformers {transformers.__version__}: {len(known)} combinations")


if __name__ == "__main__":
    main()
