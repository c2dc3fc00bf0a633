#!/usr/bin/env python3
"""Makes the tiny random checkpoints and the expected logits of tests/model.

Each checkpoint exercises what a family adds to the forward pass. The expectations come from
transformers in float32 with eager attention: logits of some ids at some positions, their
log-sum-exp over the whole vocabulary, and the greedy continuation.

    tools/make_goldens.py [--shared FOLDER]

FOLDER holds the larger models whose goldens are stored here and whose weights are not.
"""

import argparse
import json
import pathlib
import shutil

import torch
import transformers
from golden_dense import dense_configs
from golden_experts import expert_configs
from golden_small import small_configs
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests/data/models"
GOLDENS = ROOT / "tests/data/goldens"
GREEDY = 64
# A greedy step counts as decided when the best logit leads by this share of the largest one.
MARGIN = 2e-3
PROMPT = (
    "The river had frozen early that year. Children walked to the mill across the ice, carrying "
    "bread and lamps, and in the evening the miller told them how his grandfather, who built the "
    "first bridge in 1843, had measured the depth of the water with a rope and a stone."
)

SHAPE = dict(
    vocab_size=160,
    hidden_size=64,
    intermediate_size=112,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
)

# The tower of Qwen's models with images, as small as it can be.
TOWER = dict(
    depth=1,
    hidden_size=16,
    intermediate_size=16,
    num_heads=2,
    patch_size=2,
    out_hidden_size=64,
    num_position_embeddings=4,
)


def tiny_configs():
    """Yields name, config, and options: prompt length, dtype, shard size, rewrite of
    config.json."""
    rope = dict(rope_theta=10000.0, rope_type="default")
    yield "qwen2-tiny", transformers.Qwen2Config(
        **SHAPE, tie_word_embeddings=True, rope_parameters=rope
    ), {}
    yield "qwen2-window-tiny", transformers.Qwen2Config(
        **SHAPE,
        tie_word_embeddings=True,
        rope_parameters=dict(rope_theta=1000000.0, rope_type="default"),
        use_sliding_window=True,
        sliding_window=11,
        max_window_layers=1,
    ), dict(dtype=torch.float16)
    yield "mistral-tiny", transformers.MistralConfig(
        **{**SHAPE, "vocab_size": 128}, head_dim=16, sliding_window=16, rope_parameters=rope
    ), dict(shard="100KB")
    llama31 = dict(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    )
    yield "llama31-tiny", transformers.LlamaConfig(
        **{**SHAPE, "eos_token_id": [2, 3]},
        tie_word_embeddings=True,
        rope_parameters=dict(rope_theta=500000.0, **llama31),
    ), dict(prompt=90, old_rope=dict(rope_theta=500000.0, rope_scaling=llama31))
    yield "llama2-bias-tiny", transformers.LlamaConfig(
        **{**SHAPE, "num_key_value_heads": 4, "num_hidden_layers": 1, "rms_norm_eps": 1e-6},
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_theta=10000.0, rope_type="linear", factor=4.0),
    ), dict(dtype=torch.float32)
    yield "qwen3-tiny", transformers.Qwen3Config(
        **{**SHAPE, "intermediate_size": 96, "num_hidden_layers": 2},
        head_dim=40,
        tie_word_embeddings=True,
        rope_parameters=rope,
    ), {}


    yield from gemma2_configs()
    yield from phi3_configs()
    yield from qwen35_configs()
    yield from qwen35_wholes()
    yield from qwen3_vl_wholes()
    yield from qwen_hybrid_expert_configs()
    yield from expert_configs()
    yield from dense_configs()
    yield from small_configs()


def gemma2_configs():
    rope = dict(rope_theta=10000.0, rope_type="default")
    shape = {**SHAPE, "num_hidden_layers": 2, "hidden_activation": "gelu_pytorch_tanh"}
    yield "gemma2-tiny", transformers.Gemma2Config(
        **shape,
        head_dim=32,
        query_pre_attn_scalar=24,
        sliding_window=13,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=20.0,
        rope_parameters=rope,
    ), dict(embedding=0.05, gain=0.0)
    yield "gemma2-wide-tiny", transformers.Gemma2Config(
        **{**shape, "num_attention_heads": 2, "num_key_value_heads": 1},
        head_dim=256,
        query_pre_attn_scalar=256,
        sliding_window=64,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        rope_parameters=rope,
    ), dict(embedding=0.05, gain=0.0)
    yield "gemma2-plain-tiny", transformers.Gemma2Config(
        **{**shape, "num_key_value_heads": 4},
        head_dim=16,
        query_pre_attn_scalar=16,
        attention_bias=True,
        sliding_window=32,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        tie_word_embeddings=False,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters=rope,
    ), dict(embedding=0.05, gain=0.0)


def phi3_configs():
    shape = {**SHAPE, "num_hidden_layers": 2, "pad_token_id": 0}
    rope = dict(rope_theta=10000.0, rope_type="default")
    yield "phi3-tiny", transformers.Phi3Config(
        **shape, sliding_window=19, tie_word_embeddings=False, rope_parameters=rope
    ), {}
    yield "phi3-partial-tiny", transformers.Phi3Config(
        **{**shape, "hidden_size": 128, "num_key_value_heads": 1},
        tie_word_embeddings=True,
        rope_parameters={**rope, "partial_rotary_factor": 0.75},
    ), {}
    pairs = 16 // 2
    yield "phi3-long-tiny", transformers.Phi3Config(
        **shape,
        tie_word_embeddings=False,
        original_max_position_embeddings=32,
        rope_parameters=dict(
            rope_theta=10000.0,
            rope_type="longrope",
            short_factor=[1.0 + 0.1 * i for i in range(pairs)],
            long_factor=[1.5 + 0.7 * i for i in range(pairs)],
            original_max_position_embeddings=32,
        ),
    ), {}


def qwen35_configs():
    rope = dict(rope_theta=10000.0, rope_type="default")
    shape = {**SHAPE, "head_dim": 32}
    delta = dict(linear_key_head_dim=16, linear_value_head_dim=32)
    yield "qwen35-tiny", transformers.Qwen3_5TextConfig(
        **{**shape, "num_hidden_layers": 4},
        **delta,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        tie_word_embeddings=True,
        rope_parameters={**rope, "partial_rotary_factor": 0.25},
    ), dict(prompt=127, gain=0.0)
    yield "qwen35-odd-tiny", transformers.Qwen3_5TextConfig(
        **{**shape, "num_key_value_heads": 4},
        linear_key_head_dim=32,
        linear_value_head_dim=16,
        linear_num_key_heads=3,
        linear_num_value_heads=3,
        linear_conv_kernel_dim=3,
        layer_types=["full_attention", "linear_attention", "linear_attention"],
        attention_bias=True,
        tie_word_embeddings=False,
        rope_parameters={**rope, "partial_rotary_factor": 0.5},
    ), dict(prompt=65, gain=0.0)
    yield "qwen35-wide-tiny", transformers.Qwen3_5TextConfig(
        **{
            **shape,
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 2048,
        },
        linear_key_head_dim=48,
        linear_value_head_dim=64,
        linear_num_key_heads=1,
        linear_num_value_heads=3,
        linear_conv_kernel_dim=5,
        layer_types=["linear_attention", "full_attention"],
        tie_word_embeddings=True,
        rope_parameters={**rope, "partial_rotary_factor": 1.0},
    ), dict(prompt=1000, gain=0.0, positions=[0, 30, 31, 32, 62, 63, 64, 126, 999])


def qwen35_wholes():
    """Yields multimodal models, whose rope has sections for three axes, which are equal for a
    text."""
    text = {
        **SHAPE,
        "num_hidden_layers": 2,
        "head_dim": 32,
        "layer_types": ["full_attention", "linear_attention"],
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "rope_parameters": dict(
            rope_theta=10000.0,
            rope_type="default",
            partial_rotary_factor=0.5,
            mrope_interleaved=True,
            mrope_section=[3, 3, 2],
        ),
    }
    parts = dict(vision_config=TOWER, image_token_id=150, video_token_id=151)
    yield "qwen35-vision-tiny", transformers.Qwen3_5Config(
        text_config=dict(text, tie_word_embeddings=False), **parts
    ), dict(gain=0.0)
    experts = dict(
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=32,
    )
    del text["intermediate_size"]
    yield "qwen35-moe-vision-tiny", transformers.Qwen3_5MoeConfig(
        text_config=dict(text, **experts), **parts
    ), dict(gain=0.0)


def qwen3_vl_wholes():
    vision = dict(TOWER, deepstack_visual_indexes=[0])
    parts = dict(vision_config=vision, image_token_id=150, video_token_id=151)
    plain = dict(rope_theta=10000.0, rope_type="default", mrope_interleaved=True)
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    shape = {**SHAPE, "num_hidden_layers": 2}
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
    for name, config, own, other, options in (
        # With larger queries, keys as fp16 change the logits of the dense one with yarn by 2e-3.
        ("qwen3-vl", transformers.Qwen3VLConfig, {}, {}, {"scaled_queries": True}),
        (
            "qwen3-vl-moe",
            transformers.Qwen3VLMoeConfig,
            experts,
            dict(num_experts=5, mlp_only_layers=[1]),
            {},
        ),
    ):
        text = dict(shape, head_dim=24, **own)
        yield f"{name}-tiny", config(
            text_config=dict(text, rope_parameters={**plain, "mrope_section": [4, 4, 4]}),
            tie_word_embeddings=True,
            **parts,
        ), {}
        yield f"{name}-bias-tiny", config(
            text_config=dict(
                {**text, **other}, head_dim=16, attention_bias=True, rope_parameters=plain
            ),
            tie_word_embeddings=False,
            **parts,
        ), {}
        yield f"{name}-yarn-tiny", config(
            text_config=dict(
                text, rope_parameters={**plain, **yarn, "mrope_section": [6, 3, 3]}
            ),
            tie_word_embeddings=True,
            **parts,
        ), options


def qwen_hybrid_expert_configs():
    """Yields recurrent layers with experts."""
    shape = {
        **SHAPE,
        "head_dim": 32,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": dict(
            rope_theta=10000.0, rope_type="default", partial_rotary_factor=0.25
        ),
    }
    kinds = (
        ("qwen3-next", transformers.Qwen3NextConfig, {}),
        ("qwen35-moe", transformers.Qwen3_5MoeTextConfig, {"intermediate_size": None}),
    )
    for name, kind, without in kinds:
        own = {key: value for key, value in shape.items() if key not in without}
        yield f"{name}-tiny", kind(**own, tie_word_embeddings=True), dict(gain=0.0)
        odd = dict(num_experts=5, num_experts_per_tok=3, linear_num_value_heads=2)
        yield f"{name}-odd-tiny", kind(
            **{**own, **odd, "linear_conv_kernel_dim": 3}, attention_bias=True
        ), dict(gain=0.0, whole_experts=True)
        wide = dict(linear_num_key_heads=1, linear_num_value_heads=3, linear_key_head_dim=32)
        if not without:
            wide |= dict(norm_topk_prob=False, mlp_only_layers=[1])
        yield f"{name}-wide-tiny", kind(**{**own, **wide}), dict(gain=0.0, prompt=40)


def randomize(model, seed, embedding=0.25, gain=1.0, scaled_queries=False):
    """Makes weights so large that every part of the function shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("linear_attn.norm.weight"):  # is not stored minus one
                p.copy_(1 + 0.3 * noise)
            elif scaled_queries and "q_norm" in name:  # in place of a scale of attention
                p.copy_(0.5 * (gain + 0.3 * noise) / p.shape[0] ** 0.5)
            elif "norm" in name:
                p.copy_(gain + 0.3 * noise)
            elif name.endswith("A_log"):  # states live for a few and for a hundred positions
                p.copy_(2 * noise - 3)
            elif name.endswith("conv1d.weight"):
                p.copy_(noise / p.shape[2] ** 0.5)
            elif name.endswith("e_score_correction_bias"):
                p.copy_(0.1 * noise)
            elif name.endswith("bias"):  # dt_bias is one, too
                p.copy_(0.3 * noise)
            elif p.dim() == 3:  # it has all experts of a layer
                p.copy_((1.5 if "down" in name else 1.0) * noise / p.shape[2] ** 0.5)
            elif "embed" in name:  # small, lest a tied head repeats its input
                p.copy_(embedding * noise)
            elif p.dim() == 1:
                p.copy_(noise)
            else:
                scale = 1.0 if "down_proj" not in name else 1.5
                p.copy_(scale * noise / p.shape[1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith(".expert_bias"):
                # Sixteenths, which every type has: buffers are not rounded before they are used.
                buffer.copy_(torch.randint(-3, 4, buffer.shape, generator=generator) / 16)
            elif name.endswith("layer_scalar"):  # these are sixteenths, too
                buffer.copy_(torch.randint(8, 17, buffer.shape, generator=generator) / 16)


def matrices(model):
    """Yields the matrices of the layers except routers: name in the checkpoint, values in the
    model."""
    for name, p in model.named_parameters():
        if ".layers." not in name or ".mlp.gate." in name or p.dim() not in (2, 3):
            continue
        if p.dim() == 2:
            yield name, p
            continue
        prefix, _, kind = name.rpartition(".")
        for e in range(p.shape[0]):
            parts = {"down_proj": p[e]}
            if kind == "gate_up_proj":
                half = p.shape[1] // 2
                parts = {"gate_proj": p[e, :half], "up_proj": p[e, half:]}
            for part, values in parts.items():
                yield f"{prefix}.{e}.{part}.weight", values


def round_to_fp8(model, block):
    """Rounds the matrices of the layers; returns their values and scales in FP8, by name."""
    stored = {}
    for name, p in matrices(model):
        down, across = block or p.shape
        scales = torch.empty(-(-p.shape[0] // down), -(-p.shape[1] // across))
        values = torch.empty(p.shape, dtype=torch.float8_e4m3fn)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                part = slice(i * down, (i + 1) * down), slice(j * across, (j + 1) * across)
                scales[i, j] = p[part].abs().max() / 448
                values[part] = (p[part] / scales[i, j]).to(torch.float8_e4m3fn)
                with torch.no_grad():
                    p[part] = values[part].float() * scales[i, j]
        stored[name] = values
        stored[name + "_scale_inv"] = scales if block else scales[0, 0]
        if not block:
            stored[name.removesuffix("weight") + "activation_scale"] = torch.tensor(0.5)
    return stored


def save_fp8(folder, stored, block):
    path = folder / "model.safetensors"
    save_file({**load_file(path), **stored}, path, metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = dict(
        quant_method="fp8",
        weight_block_size=block,
        activation_scheme="dynamic" if block else "static",
        modules_to_not_convert=["lm_head"],
    )
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def evaluate(model, prompt, give_up=False):
    """Returns the greedy continuation, logits [tokens, vocab] of the prompt, and whether it is
    decided."""
    with torch.no_grad():
        step = model(torch.tensor([prompt]), use_cache=True)
        logits, greedy, decided = step.logits[0], [], True
        for _ in range(GREEDY):
            last = step.logits[0, -1]
            top = last.topk(2)
            decided &= bool(top.values[0] - top.values[1] > MARGIN * last.abs().max())
            if not decided and give_up:
                break
            greedy.append(int(top.indices[0]))
            step = model(
                torch.tensor([greedy[-1:]]), use_cache=True, past_key_values=step.past_key_values
            )
    return greedy, logits, decided


def write_golden(name, prompt, greedy, logits, positions=None):
    count, vocab = logits.shape
    if positions is None:
        positions = sorted({0, count // 5, count // 3, count // 2, count - 2, count - 1})
    if vocab <= 256:
        ids = list(range(vocab))
    else:
        generator = torch.Generator().manual_seed(7)
        ids = sorted(torch.randperm(vocab, generator=generator)[:64].tolist())
    rows = logits[positions]
    golden = dict(
        model=name,
        transformers=transformers.__version__,
        tokens=prompt,
        greedy=greedy,
        positions=positions,
        ids=ids,
        logits=[[float(f"{v:.8g}") for v in row[ids].tolist()] for row in rows],
        max_abs=[float(f"{v:.8g}") for v in rows.abs().amax(dim=1).tolist()],
        logsumexp=[float(f"{v:.8g}") for v in rows.double().logsumexp(dim=1).tolist()],
    )
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items())
    (GOLDENS / f"{name}.json").write_text("{\n" + lines + "\n}\n")


def make_tiny(
    name,
    config,
    prompt=64,
    dtype=torch.bfloat16,
    shard="1GB",
    old_rope=None,
    drop=(),
    add=None,
    context=0,
    fp8=None,
    embedding=0.25,
    gain=1.0,
    scaled_queries=False,
    positions=None,
    whole_experts=False,
    accept=None,
):
    if old_rope:
        drop, add = ["rope_parameters"], old_rope
    config._attn_implementation = "eager"
    folder = MODELS / name
    vocab = config.get_text_config().vocab_size
    several_parts = config.get_text_config() is not config
    kind = transformers.AutoModelForImageTextToText if several_parts else AutoModelForCausalLM
    for seed in range(1000):
        model = kind.from_config(config, attn_implementation="eager")
        model = model.to(torch.float32).eval()
        randomize(model, seed, embedding, gain, scaled_queries)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.to(dtype))
        stored = round_to_fp8(model, fp8["block"]) if fp8 else {}
        generator = torch.Generator().manual_seed(seed + 1)
        ids = torch.randint(3, vocab, (prompt,), generator=generator).tolist()
        if context:  # transformers' rope then keeps the frequencies for texts of this length
            with torch.no_grad():
                model(torch.zeros(1, context, dtype=torch.long))
        greedy, logits, decided = evaluate(model, ids, give_up=True)
        if decided and len(set(greedy)) > 8 and (accept is None or accept(model, ids)):
            break
    else:
        raise SystemExit(f"{name}: no seed with a decided continuation")
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(
        folder, max_shard_size=shard, save_original_format=not whole_experts
    )
    (folder / "generation_config.json").unlink(missing_ok=True)
    if fp8:
        save_fp8(folder, stored, fp8["block"])
    if add:
        path = folder / "config.json"
        data = json.loads(path.read_text())
        data = {key: value for key, value in data.items() if key not in drop}
        path.write_text(json.dumps({**data, **add}, indent=2, sort_keys=True) + "\n")
    write_golden(name, ids, greedy, logits, positions)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, {size} bytes, {len(set(greedy))} distinct greedy tokens")


def make_real(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    prompt = tokenizer(PROMPT, add_special_tokens=False).input_ids
    prompt = [model.config.bos_token_id] + prompt
    greedy, logits, decided = evaluate(model, prompt)
    write_golden(folder.name, prompt, greedy, logits)
    print(f"{folder.name}: {len(prompt)} tokens, {'decided' if decided else 'CLOSE CALLS'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--only", help="tiny checkpoints whose names begin so, nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    GOLDENS.mkdir(parents=True, exist_ok=True)
    for name, config, options in tiny_configs():
        if name.startswith(args.only or ""):
            make_tiny(name, config, **options)
    if args.only:
        return
    make_real(ROOT / "models/walsh-tiny-13m")
    for name in ("walsh-ref-27m", "walsh-qwen3-16m", "walsh-moe-20m", "walsh-qwen35-17m"):
        make_real(args.shared / "models" / name)


if __name__ == "__main__":
    main()
