#!/usr/bin/env python3
"""Writes docs/sizes.json: the sizes of files of published models, as `walsh quantize --dry-run`
computes them from checkpoints that have the published shapes and no weights.

    tools/size_table.py [WALSH]        then tools/make_results.py --only-tables
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMON = {"torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-5,
          "max_position_embeddings": 32768, "rope_theta": 500000.0, "bos_token_id": 1,
          "eos_token_id": 2, "tie_word_embeddings": False}
MODELS = {
    "Llama-3.1-8B": {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                     "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                     "vocab_size": 128256},
    "Qwen3-30B-A3B": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
                      "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
                      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                      "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 768, "norm_topk_prob": True,
                      "decoder_sparse_step": 1, "mlp_only_layers": []},
}
# These models need several GPUs; docs/guide/scale.md has a table of them.
LARGE = {
    "Llama-3.1-70B": {**MODELS["Llama-3.1-8B"], "hidden_size": 8192, "intermediate_size": 28672,
                      "num_hidden_layers": 80, "num_attention_heads": 64},
    "Qwen3-235B-A22B": {**MODELS["Qwen3-30B-A3B"], "hidden_size": 4096, "num_hidden_layers": 94,
                        "num_attention_heads": 64, "moe_intermediate_size": 1536},
    "DeepSeek-V3 (671B)": {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 61, "first_k_dense_replace": 3, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True,
        "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "ep_size": 1,
        "num_nextn_predict_layers": 0},
}
LARGE_TYPES = ["tq4", "tq3"]
TYPES = ["tq4+4", "tq4", "tc4", "tc3.5", "tq3", "tc3", "tc2.5"]
ENDS = "bf16"  # embedding and head have it in the second column; the first has the defaults


def latent_tensors(config):
    """Yields the same for multi-head latent attention and DeepSeek's experts."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], "kv_lora_rank"
    query = heads * (config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    both = heads * (config["qk_nope_head_dim"] + config["v_head_dim"])
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        own, mlp = at + "self_attn.", at + "mlp."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        yield own + "q_a_proj.weight", (config["q_lora_rank"], hidden)
        yield own + "q_a_layernorm.weight", (config["q_lora_rank"],)
        yield own + "q_b_proj.weight", (query, config["q_lora_rank"])
        yield own + "kv_a_proj_with_mqa.weight", (config[rank] + config["qk_rope_head_dim"], hidden)
        yield own + "kv_a_layernorm.weight", (config[rank],)
        yield own + "kv_b_proj.weight", (both, config[rank])
        yield own + "o_proj.weight", (hidden, heads * config["v_head_dim"])
        places, wide = [mlp], config["intermediate_size"]
        if layer >= config["first_k_dense_replace"]:
            yield mlp + "gate.weight", (config["n_routed_experts"], hidden)
            yield mlp + "gate.e_score_correction_bias", (config["n_routed_experts"],)
            places = [f"{mlp}experts.{e}." for e in range(config["n_routed_experts"])]
            places.append(mlp + "shared_experts.")
            wide = config["moe_intermediate_size"]
        for place in places:
            yield from gated_tensors(place, wide, hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def gated_tensors(place, wide, hidden):
    for name, size in (("gate", (wide, hidden)), ("up", (wide, hidden)), ("down", (hidden, wide))):
        yield f"{place}{name}_proj.weight", size


def tensors(config):
    """Yields names and sizes in the order of the file."""
    if "kv_lora_rank" in config:
        yield from latent_tensors(config)
        return
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    shared = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name, size in (("q", (heads, hidden)), ("k", (shared, hidden)), ("v", (shared, hidden)),
                           ("o", (hidden, heads))):
            yield f"{at}self_attn.{name}_proj.weight", size
        if config["model_type"] == "llama":
            places, wide = [at + "mlp."], config["intermediate_size"]
        else:
            for name in ("q_norm", "k_norm"):
                yield f"{at}self_attn.{name}.weight", (config["head_dim"],)
            yield at + "mlp.gate.weight", (config["num_experts"], hidden)
            places = [f"{at}mlp.experts.{e}." for e in range(config["num_experts"])]
            wide = config["moe_intermediate_size"]
        for place in places:
            yield from gated_tensors(place, wide, hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def write_model(folder, config):
    """Writes a checkpoint whose weights are a sparse file; returns its nominal size in bytes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**COMMON, **config}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((ROOT / "models/walsh-tiny-13m" / name).read_bytes())
    header, offset = {}, 0
    for name, size in tensors(config):
        end = offset + 2 * size[0] * (size[1] if len(size) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + offset)
    return offset


def predicted(walsh, folder, kind, *flags):
    done = subprocess.run([walsh, "quantize", folder, folder / "out.gguf", "--type", kind,
                           "--dry-run", "--json", *flags], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{folder.name}: {kind}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    walsh = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/walsh"
    rows, scale = [], []
    with tempfile.TemporaryDirectory() as place:
        for name, config in MODELS.items():
            folder = pathlib.Path(place) / name
            rows.append({"model": name, "type": "bf16", "bytes": write_model(folder, config)})
            for kind in TYPES:
                plain = predicted(walsh, folder, kind)
                other = predicted(walsh, folder, kind, "--embed-type", ENDS, "--head-type", ENDS)
                rows.append({"model": name, "type": kind, "bpw": plain["bpw"],
                             "bytes": plain["bytes"], "other_bytes": other["bytes"]})
                print(rows[-1], file=sys.stderr)
        for name, config in {**MODELS, **LARGE}.items():
            folder = pathlib.Path(place) / ("scale " + name)
            scale.append({"model": name, "bf16": write_model(folder, config)})
            for kind in LARGE_TYPES:  # vLLM keeps embedding and head as they are
                ends = "--embed-type", ENDS, "--head-type", ENDS
                scale[-1][kind] = predicted(walsh, folder, kind, *ends)["bytes"]
            print(scale[-1], file=sys.stderr)
    figures = {"ends": ENDS, "rows": rows, "scale": scale}
    (ROOT / "docs/sizes.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
