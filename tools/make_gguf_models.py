#!/usr/bin/env python3
"""Writes tests/data/gguf: what llama.cpp's own converter makes of small models of
tests/data/models, without tokenizers. Run: python3 tools/make_gguf_models.py LLAMA_CPP_FOLDER

A file has the metadata, and of every tensor its type, its shape and where its elements come from.
That is found by converting a checkpoint whose values are their own numbers. An element of a map
is [start, n0, step0, n1, step1, ...]: the elements start + i0 step0 + i1 step1 + ..., i0 running
fastest, of the checkpoint's tensors one behind the other in the order of `sources`."""
import contextlib
import json
import pathlib
import runpy
import shutil
import sys
import tempfile

import numpy
import safetensors.numpy

# Each model has what the format cannot tell, so that it reads as the usual value ("config", "rope"
# within it), metadata that llama.cpp reads and its converter does not write for these configs,
# flags, and keys of published configs that the converter asks for ("given").
MODELS = {
    "arcee-tiny": {},
    "cohere2-tiny": {"given": {"rotary_pct": 1.0}},
    "deepseek-v2-groups-tiny": {"separate": True},
    "deepseek-v2-tiny": {"rope": {"mscale": 0.9, "truncate": True}},
    "deepseek-v3-free-tiny": {"separate": True,
                              "metadata": [["deepseek2.expert_gating_func", "UINT32", 2]]},
    "ernie45-moe-tiny": {},
    "ernie45-tiny": {},
    "exaone4-full-tiny": {},
    "exaone4-tiny": {},
    "gemma-tiny": {},
    "gemma-wide-tiny": {},
    "gemma2-tiny": {"config": {"query_pre_attn_scalar": 32}},
    "gemma3-tiny": {"config": {"query_pre_attn_scalar": 32},
                    "metadata": [["gemma3.attention.sliding_window_pattern", "BOOL[]",
                                  [True, False, True]]]},
    "gemma4-moe-tiny": {},
    "gemma4-tiny": {},
    "gemma4-wide-tiny": {},
    "glm4-plain-tiny": {},
    "glm4-tiny": {},
    "glm4-moe-free-tiny": {},
    "glm4-moe-tiny": {},
    "gpt-oss-plain-tiny": {"config": {"swiglu_limit": 7}},
    "gpt-oss-tiny": {"config": {"swiglu_limit": 7}},
    "granite-bias-tiny": {"flags": ["--fuse-qkv"]},
    "granite-yarn-tiny": {},
    "granite-hybrid-tiny": {"given": {"layer_types": ["mamba", "mamba", "attention", "mamba"]},
                            "config": {"max_position_embeddings": 1 << 20}},
    "granitemoe-tiny": {},
    "hunyuan-tiny": {"given": {"max_position_embeddings": 32768},
                     "config": {"max_position_embeddings": 262144}},
    "lfm2-moe-tiny": {},
    "lfm2-old-tiny": {"given": {"layer_types": ["conv", "conv", "full_attention"]}},
    "lfm2-tiny": {},
    "llama2-bias-tiny": {"type": "f32"},
    "llama31-tiny": {},
    "llama4-tiny": {"config": {"attention_chunk_size": 8192, "attn_scale": 0.1, "floor_scale": 8192,
                               "layer_types": ["chunked_attention"] * 3,
                               "no_rope_layers": [1, 1, 1]}},
    "minimax-m2-old-tiny": {},
    "ministral3-tiny": {},
    "mistral3-vision-tiny": {},
    "mixtral-tiny": {"config": {"sliding_window": None}},
    "olmo2-yarn-tiny": {},
    "olmo3-tiny": {},
    "olmoe-tiny": {},
    "phi3-long-tiny": {},
    "qwen2-moe-tiny": {},
    "qwen2-tiny": {"flags": ["--fuse-qkv"]},
    "qwen3-moe-tiny": {},
    "qwen3-next-tiny": {"flags": ["--no-mtp"]},
    "qwen3-tiny": {},
    "qwen35-moe-tiny": {"flags": ["--no-mtp", "--fuse-gate-up-exps"]},
    "qwen35-tiny": {"flags": ["--no-mtp"]},
    "qwen35-wide-tiny": {"flags": ["--no-mtp"]},
    "seed-oss-tiny": {},
    "smollm3-tiny": {},
}


def convert(source, folder, out, kind, flags):
    """Runs the converter, whose main() exits."""
    sys.argv = ["convert", str(folder), "--outfile", str(out), "--outtype", kind, "--model-name",
                "model", *flags]
    with contextlib.suppress(SystemExit):
        runpy.run_path(str(source / "convert_hf_to_gguf.py"), run_name="__main__")


def stored(path):
    """Returns the tensors of a safetensors file as float32, by name."""
    import torch
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name).to(torch.float32).numpy()
                for name in sorted(file.keys())}


def separate_experts(path):
    """Gives every expert tensors of its own, as checkpoints of transformers 4 have them."""
    import safetensors.torch

    result = {}
    for name, value in safetensors.torch.load_file(path).items():
        stem, dot, kind = name.rpartition(".experts.")
        if kind not in ("gate_up_proj", "down_proj"):
            result[name] = value
            continue
        parts = value.chunk(2, 1) if kind == "gate_up_proj" else [value]
        for part, label in zip(parts, ("gate_proj", "up_proj") if len(parts) == 2 else (kind,)):
            for i, expert in enumerate(part):
                result[f"{stem}{dot}{i}.{label}.weight"] = expert.contiguous()
    safetensors.torch.save_file(result, path, metadata={"format": "pt"})


def pieces(numbers):
    """Returns the map of a list of numbers."""
    result, begin = [], 0
    while begin < len(numbers):
        rest, piece, block = numbers[begin:], [int(numbers[begin])], 1
        while len(rest) >= 2 * block:
            count = len(rest) // block
            blocks = rest[:count * block].reshape(count, block)
            step = blocks[1, 0] - blocks[0, 0]
            expected = blocks[:1] + step * numpy.arange(count)[:, None]
            equal = (blocks == expected).all(axis=1)
            same = count if equal.all() else int(equal.argmin())
            if same == 1:
                break
            piece += [same, int(step)]
            block *= same
        result.append(piece)
        begin += block
    return result


def gather(maps, values):
    """Returns the elements that the test takes for a map."""
    parts = []
    for start, *steps in maps:
        numbers = numpy.array([start])
        for count, step in zip(steps[::2], steps[1::2]):
            numbers = (numbers[None] + step * numpy.arange(count)[:, None]).reshape(-1)
        parts.append(values[numbers])
    return numpy.concatenate(parts)


def values_of(gguf, tensor):
    data = numpy.array(tensor.data)
    if tensor.tensor_type.name == "BF16":
        data = data.reshape(-1).view(numpy.uint8)
    return gguf.quants.dequantize(data.reshape(-1), tensor.tensor_type).reshape(-1)


def describe(gguf, real, numbered, values):
    """Returns the entry of one tensor: as converted, and with numbers for values."""
    entry = {"name": real.name, "type": real.tensor_type.name,
             "dims": [int(n) for n in real.shape]}
    expected, marks = values_of(gguf, real), values_of(gguf, numbered).astype(numpy.float64)
    if real.name.startswith("rope_f"):
        entry["values"] = [float(v) for v in expected]
        return entry
    if (marks < 0).all():
        entry["function"], marks = "-exp", numpy.rint(-marks)
    positions = marks.astype(numpy.int64) - 1  # the numbers begin at 1
    if entry.get("function"):
        entry["map"] = pieces(positions)
        assert numpy.allclose(-numpy.exp(values[positions]), expected, rtol=1e-6), real.name
        return entry
    if (positions >= len(values)).any() or not numpy.array_equal(values[positions], expected):
        positions, entry["plus"] = positions - 1, 1
    entry["map"] = pieces(positions)
    found = gather(entry["map"], values) + numpy.float32(entry.get("plus", 0))
    assert numpy.array_equal(found, expected), real.name
    return entry


def metadata(gguf, reader):
    result = []
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.name", "general.size_label"):
            continue
        kind = field.types[-1].name + ("[]" if field.types[0] == gguf.GGUFValueType.ARRAY else "")
        result.append([field.name, kind, field.contents()])
    return result


def recipe(gguf, source, folder, options):
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        tensors = stored(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        vocabulary = config.get("text_config", config)["vocab_size"]
        tokenizer = {"model": {"vocab": {f"t{i}": i for i in range(vocabulary)}},
                     "added_tokens": []}
        first, numbers = 1, {}
        for key, value in tensors.items():
            count = numpy.arange(first, first + value.size, dtype=numpy.float32)
            first += value.size
            numbers[key] = (numpy.log(count) if key.endswith("A_log") else count).reshape(
                value.shape)
        assert first < 1 << 24  # a float32 holds the numbers
        files = {}
        for kind, dtype in (("real", options.get("type", "bf16")), ("numbered", "f32")):
            model = work / kind
            shutil.copytree(folder, model)
            (model / "tokenizer.json").write_text(json.dumps(tokenizer))
            if "given" in options:
                (model / "config.json").write_text(json.dumps(config | options["given"]))
            if kind == "numbered":
                safetensors.numpy.save_file(numbers, model / "model.safetensors",
                                            metadata={"format": "pt"})
            if options.get("separate"):
                separate_experts(model / "model.safetensors")
            convert(source, model, work / f"{kind}.gguf", dtype, options.get("flags", []))
            files[kind] = gguf.GGUFReader(work / f"{kind}.gguf")
        values = numpy.concatenate([value.reshape(-1) for value in tensors.values()])
        numbered = {tensor.name: tensor for tensor in files["numbered"].tensors}
        changes = dict(options.get("config", {}))
        if "rope" in options:
            changes["rope_parameters"] = config["rope_parameters"] | options["rope"]
        return {"model": folder.name, "config": changes,
                "metadata": metadata(gguf, files["real"]) + options.get("metadata", []),
                "sources": list(tensors),
                "tensors": [describe(gguf, tensor, numbered[tensor.name], values)
                            for tensor in files["real"].tensors]}


def write(path, result):
    """Writes one line per value of the metadata and per tensor."""
    lines = []
    for key, value in result.items():
        if key in ("metadata", "tensors"):
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f' "{key}": [\n  {rows}]')
        else:
            lines.append(f' "{key}": {json.dumps(value)}')
    path.write_text("{\n" + ",\n".join(lines) + "}\n")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    source = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:] or MODELS
    sys.path[:0] = [str(source / "gguf-py"), str(source)]
    import gguf
    import gguf.quants
    from conversion import (base, command_r, deepseek, ernie, exaone, gemma, glm, gpt_oss,
                            granite, hunyuan, lfm2, llama, minimax, mistral3, olmo, phi, qwen)

    for module in (base, command_r, deepseek, ernie, exaone, gemma, glm, gpt_oss, granite, hunyuan,
                   lfm2, llama, minimax, olmo, phi, qwen):
        for value in list(vars(module).values()):
            if (isinstance(value, type) and issubclass(value, base.TextModel)
                    and value is not mistral3.Mistral3Model):  # the converter uses another class
                value.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("none")
    for name in wanted:
        result = recipe(gguf, source, root / "tests" / "data" / "models" / name, MODELS[name])
        write(root / "tests" / "data" / "gguf" / f"{name}.json", result)


main()
