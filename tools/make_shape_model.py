#!/usr/bin/env python3
"""Writes a Hugging Face checkpoint of a published shape with random bf16 weights, and a tokenizer
of that many tokens: a model whose speed can be measured and whose texts mean nothing.

    python3 tools/make_shape_model.py OUT [--shape 1b] [--tokenizer models/walsh-tiny-13m]
                                      [--layers N] [--vocabulary N]

Needs numpy.
"""
import argparse
import json
import pathlib
import struct

import numpy

SHAPES = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
           "vocab_size": 128256},
    "1b": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
           "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 64,
           "vocab_size": 32000},
    "small": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
              "vocab_size": 9000},
}
SHAPES_WITH_EXPERTS = {
    "30b-a3b": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
                "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
                "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                "vocab_size": 151936},
}


def tensors(config):
    """Yields names and sizes in the order of the file."""
    experts = config.get("num_experts", 0)
    hidden = config["hidden_size"]
    wide = config["moe_intermediate_size" if experts else "intermediate_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    shared = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        for name, size in (("q", (heads, hidden)), ("k", (shared, hidden)), ("v", (shared, hidden)),
                           ("o", (hidden, heads))):
            yield f"{at}self_attn.{name}_proj.weight", size
        yield at + "post_attention_layernorm.weight", (hidden,)
        if experts:
            for name in ("q_norm", "k_norm"):
                yield f"{at}self_attn.{name}.weight", (config["head_dim"],)
            yield at + "mlp.gate.weight", (experts, hidden)
        for block in [f"mlp.experts.{i}." for i in range(experts)] or ["mlp."]:
            for name, size in (("gate", (wide, hidden)), ("up", (wide, hidden)),
                               ("down", (hidden, wide))):
                yield f"{at}{block}{name}_proj.weight", size
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def write_weights(path, config):
    """Writes one file of safetensors: its length, its header, its data."""
    header, offset = {}, 0
    for name, size in tensors(config):
        count = int(numpy.prod(size))
        end = offset + 2 * count
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Making random numbers is slow: tensors share one buffer, each with its own offset.
    numbers = numpy.random.default_rng(1).standard_normal(1 << 24, numpy.float32)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for place, (name, size) in enumerate(tensors(config)):
            count = int(numpy.prod(size))
            if len(size) == 1:
                values = numpy.ones(count, numpy.float32)
            else:
                at = 7919 * place % len(numbers)
                values = numpy.concatenate((numbers[at:at + count], numbers[:min(at, count)]))
                values = numpy.resize(values, count) / size[1] ** 0.5
            out.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())


def write_tokenizer(source, folder, count):
    """Writes the source's tokenizer, extended to the given number of tokens."""
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    known = set(vocabulary.values())
    for number in range(count):
        if number not in known:
            vocabulary[f"w{number}"] = number
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
        if (source / name).exists():
            (folder / name).write_bytes((source / name).read_bytes())


def main():
    """Writes the folder."""
    known = {**SHAPES, **SHAPES_WITH_EXPERTS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", choices=sorted(known), default="1b")
    parser.add_argument("--layers", type=int, help="so many of the shape's layers")
    parser.add_argument("--vocabulary", type=int, help="so many tokens")
    parser.add_argument("--tokenizer", type=pathlib.Path,
                        default=pathlib.Path("models/walsh-tiny-13m"))
    options = parser.parse_args()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048,
              "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0,
              "eos_token_id": 1, **known[options.shape]}
    if options.layers:
        config["num_hidden_layers"] = options.layers
    if options.vocabulary:
        config["vocab_size"] = options.vocabulary
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(options.tokenizer, options.out, config["vocab_size"])
    write_weights(options.out / "model.safetensors", config)


if __name__ == "__main__":
    main()
