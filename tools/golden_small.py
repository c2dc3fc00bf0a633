"""Defines tiny random configurations of further families, for tools/make_goldens.py: name, config,
options.

As in golden_dense.py and golden_experts.py, with smaller shapes. In so small a model the rounding
of keys and values to fp16, which caches have, may move logits by more than tests allow: of such a
configuration only models are taken in which it does not (STEADY).
"""

import torch
import transformers as hf
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

SHAPE = dict(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
# A model is taken if rounded keys and values move no logit by this share of its row's largest.
MOST_MOVE = 8e-4
RMS = dict(rms_norm_eps=1e-5)
ROPE = dict(rope_theta=10000.0, rope_type="default")
YARN = dict(
    rope_theta=10000.0, rope_type="yarn", factor=8.0, original_max_position_embeddings=32
)
LLAMA3 = dict(
    rope_theta=500000.0,
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)


def shape(**changes):
    return {**SHAPE, **RMS, "rope_parameters": dict(ROPE), **changes}


def is_steady(model, prompt):
    """Returns whether logits stay about the same if keys and values are rounded to fp16."""
    kinds = (DynamicLayer, DynamicSlidingWindowLayer)
    updates = [kind.update for kind in kinds]
    tokens = torch.tensor([prompt])
    with torch.no_grad():
        exact = model(tokens).logits[0]
        for kind, update in zip(kinds, updates):
            kind.update = lambda self, k, v, *rest, update=update, **more: update(
                self, k.half().float(), v.half().float(), *rest, **more
            )
        rounded = model(tokens, use_cache=True).logits[0]
    for kind, update in zip(kinds, updates):
        kind.update = update
    moves = (exact - rounded).abs().amax(1) / exact.abs().amax(1)
    return float(moves.max()) < MOST_MOVE


STEADY = dict(accept=is_steady)


def small_configs():
    yield from seed_oss()
    yield from exaone4()
    yield from ernie()
    yield from minimax()
    yield from arcee()
    yield from hunyuan()
    yield from cohere2()
    yield from lfm2()
    yield from lfm2_moe()
    yield from granite_hybrid()
    yield from nemotron_h()


def seed_oss():
    yield "seed-oss-tiny", hf.SeedOssConfig(**shape(), head_dim=16), {}
    yield "seed-oss-bias-tiny", hf.SeedOssConfig(
        **shape(num_attention_heads=4, rope_parameters=dict(YARN)),
        head_dim=8,
        attention_out_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    ), STEADY
    yield "seed-oss-plain-tiny", hf.SeedOssConfig(
        **shape(num_key_value_heads=2, rope_parameters=dict(ROPE, rope_theta=1e7)),
        head_dim=24,
        attention_bias=False,
        attention_out_bias=True,
        tie_word_embeddings=True,
    ), {}


def exaone4():
    yield "exaone4-tiny", hf.Exaone4Config(
        **shape(num_hidden_layers=3, intermediate_size=24, rope_parameters=dict(LLAMA3)),
        sliding_window=11,
        sliding_window_pattern=3,
        tie_word_embeddings=True,
    ), {}
    yield "exaone4-full-tiny", hf.Exaone4Config(
        **shape(num_key_value_heads=2),
        sliding_window=None,
        layer_types=["full_attention"] * 2,
    ), {}
    yield "exaone4-old-tiny", hf.Exaone4Config(
        **shape(num_attention_heads=4, num_key_value_heads=2, rope_parameters=dict(YARN)),
        head_dim=16,
        sliding_window=20,
        sliding_window_pattern=2,
        tie_word_embeddings=True,
    ), dict(STEADY, drop=["layer_types"], add=dict(sliding_window_pattern=2))


def ernie():
    yield "ernie45-tiny", hf.Ernie4_5Config(**shape(), head_dim=16), {}
    yield "ernie45-bias-tiny", hf.Ernie4_5Config(
        **shape(num_attention_heads=4, rope_parameters=dict(ROPE, rope_theta=5e5)),
        head_dim=8,
        use_bias=True,
        tie_word_embeddings=False,
    ), {}
    yield "ernie45-yarn-tiny", hf.Ernie4_5Config(
        **shape(num_key_value_heads=2, rope_parameters=dict(YARN)), head_dim=24
    ), {}
    experts = dict(moe_num_experts=6, moe_k=2, moe_intermediate_size=16)
    yield "ernie45-moe-tiny", hf.Ernie4_5_MoeConfig(
        **shape(num_hidden_layers=3), **experts, moe_num_shared_experts=2
    ), STEADY
    yield "ernie45-moe-range-tiny", hf.Ernie4_5_MoeConfig(
        **shape(num_hidden_layers=4, rope_parameters=dict(ROPE, rope_theta=5e5)),
        **dict(experts, moe_num_experts=5, moe_k=3),
        moe_num_shared_experts=1,
        moe_layer_interval=2,
        moe_layer_end_index=2,
        tie_word_embeddings=False,
    ), {}
    yield "ernie45-moe-alone-tiny", hf.Ernie4_5_MoeConfig(
        **shape(rope_parameters=dict(YARN)),
        **dict(experts, moe_k=1),
        moe_num_shared_experts=0,
        moe_layer_start_index=0,
    ), {}


def minimax():
    experts = dict(intermediate_size=16, num_local_experts=4, num_experts_per_tok=2)
    half = dict(ROPE, partial_rotary_factor=0.5)
    yield "minimax-m2-tiny", hf.MiniMaxM2Config(
        **shape(**experts, num_attention_heads=4, num_key_value_heads=2, rope_parameters=half),
        head_dim=8,
    ), {}
    yield "minimax-m2-old-tiny", hf.MiniMaxM2Config(
        **shape(**dict(experts, num_experts_per_tok=3), rope_parameters=dict(half, rope_theta=5e6)),
        head_dim=16,
    ), dict(
        drop=["rope_parameters"],
        add=dict(
            rope_theta=5000000,
            rotary_dim=8,
            scoring_func="sigmoid",
            use_routing_bias=True,
            use_qk_norm=True,
            qk_norm_type="per_layer",
            attn_type_list=[1, 1],
            shared_intermediate_size=0,
            use_mtp=True,
            num_mtp_modules=3,
            mtp_transformer_layers=1,
        ),
    )
    yield "minimax-m2-tied-tiny", hf.MiniMaxM2Config(
        **shape(**dict(experts, num_local_experts=3, num_experts_per_tok=1)),
        head_dim=32,
        tie_word_embeddings=True,
    ), {}


def arcee():
    yield "arcee-tiny", hf.ArceeConfig(**shape(rope_parameters=dict(YARN)), head_dim=16), STEADY
    yield "arcee-bias-tiny", hf.ArceeConfig(
        **shape(num_attention_heads=4), attention_bias=True, mlp_bias=True
    ), STEADY
    yield "arcee-tied-tiny", hf.ArceeConfig(
        **shape(num_key_value_heads=2, rope_parameters=dict(LLAMA3)),
        head_dim=24,
        tie_word_embeddings=True,
    ), {}


def hunyuan():
    alpha = dict(ROPE, rope_type="dynamic", alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1)
    yield "hunyuan-tiny", hf.HunYuanDenseV1Config(
        **shape(rope_parameters=alpha), head_dim=16, tie_word_embeddings=True
    ), {}
    yield "hunyuan-bias-tiny", hf.HunYuanDenseV1Config(
        **shape(num_attention_heads=4), head_dim=8, attention_bias=True
    ), {}
    old = {key: value for key, value in alpha.items() if not key.startswith("rope_")}
    yield "hunyuan-old-tiny", hf.HunYuanDenseV1Config(
        **shape(num_key_value_heads=2, rope_parameters=dict(alpha, alpha=1000.0)), head_dim=24
    ), dict(
        STEADY,
        drop=["rope_parameters"],
        add=dict(
            rope_theta=10000.0,
            rope_scaling=dict(old, type="dynamic", alpha=1000.0, mscale=1.0, mscale_all_dim=1.0),
            attention_head_dim=24,
            use_qk_norm=True,
            use_cla=False,
        ),
    )


def cohere2_shape(**changes):
    own = shape(layer_norm_eps=1e-5, rope_parameters=dict(ROPE, rope_theta=50000.0), **changes)
    del own["rms_norm_eps"]
    return own


def cohere2():
    # The logits are as large as those of other families.
    yield "cohere2-tiny", hf.Cohere2Config(
        **cohere2_shape(num_hidden_layers=4, intermediate_size=16),
        sliding_window=11,
        logit_scale=0.25,
    ), {}
    yield "cohere2-bias-tiny", hf.Cohere2Config(
        **cohere2_shape(num_attention_heads=4),
        attention_bias=True,
        sliding_window=20,
        layer_types=["full_attention", "sliding_attention"],
        tie_word_embeddings=False,
    ), {}
    yield "cohere2-old-tiny", hf.Cohere2Config(
        **cohere2_shape(num_hidden_layers=3, num_key_value_heads=2),
        sliding_window=16,
        sliding_window_pattern=2,
        logit_scale=1.0,
    ), dict(drop=["layer_types"], add=dict(sliding_window_pattern=2))


def lfm2_shape(layers, **changes):
    """Returns a shape whose layers are convolutions ("c") or attention ("a")."""
    types = ["conv" if kind == "c" else "full_attention" for kind in layers]
    rope = dict(ROPE, rope_theta=1e6)
    return {
        **SHAPE,
        "num_hidden_layers": len(layers),
        "layer_types": types,
        "rope_parameters": rope,
        **changes,
    }


def lfm2():
    yield "lfm2-tiny", hf.Lfm2Config(
        **lfm2_shape("ccac", intermediate_size=48), block_multiple_of=16
    ), dict(prompt=70)
    yield "lfm2-bias-tiny", hf.Lfm2Config(
        **lfm2_shape("cca", num_attention_heads=4),
        conv_bias=True,
        conv_L_cache=4,
        block_auto_adjust_ff_dim=False,
        tie_word_embeddings=False,
    ), STEADY
    # As published files of 2025 have it: 60 / 3 * 2 * 1.25 = 50, which becomes 56.
    yield "lfm2-old-tiny", hf.Lfm2Config(
        **lfm2_shape("cca", intermediate_size=60, num_key_value_heads=2),
        block_multiple_of=8,
        block_ffn_dim_multiplier=1.25,
    ), dict(
        drop=["layer_types", "intermediate_size", "rope_parameters", "tie_word_embeddings"],
        add=dict(
            full_attn_idxs=[2],
            block_ff_dim=60,
            rope_theta=1e6,
            block_dim=32,
            block_norm_eps=1e-5,
            block_use_swiglu=True,
            conv_dim=32,
            conv_dim_out=32,
            num_heads=2,
            use_pos_enc=True,
        ),
    )


def lfm2_moe():
    experts = dict(moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2)
    yield "lfm2-moe-tiny", hf.Lfm2MoeConfig(
        **lfm2_shape("cac"), **experts, num_dense_layers=1
    ), STEADY
    yield "lfm2-moe-plain-tiny", hf.Lfm2MoeConfig(
        **lfm2_shape("ca", num_key_value_heads=2),
        **experts,
        num_dense_layers=0,
        conv_bias=True,
        use_expert_bias=False,
        norm_topk_prob=False,
        routed_scaling_factor=1.5,
        tie_word_embeddings=False,
    ), STEADY
    yield "lfm2-moe-whole-tiny", hf.Lfm2MoeConfig(
        **lfm2_shape("cca"),
        **dict(experts, num_experts=5, num_experts_per_tok=3),
        num_dense_layers=1,
        conv_L_cache=5,
    ), dict(STEADY, whole_experts=True)


def granite_hybrid():
    """Yields Granite 4: layers are Mamba-2 mixers ("m") or attention ("a")."""

    def hybrid(layers, **changes):
        types = ["mamba" if kind == "m" else "attention" for kind in layers]
        own = dict(
            num_hidden_layers=len(layers),
            layer_types=types,
            mamba_n_heads=4,
            mamba_d_state=16,
            mamba_chunk_size=16,
            shared_intermediate_size=48,
        )
        return shape(**{**own, **changes})

    # As published models of 2025 have it.
    yield "granite-hybrid-tiny", hf.GraniteMoeHybridConfig(
        **hybrid("mmam", num_local_experts=4, num_experts_per_tok=2, intermediate_size=16),
        embedding_multiplier=3.0,
        logits_scaling=2.0,
        residual_multiplier=0.5,
        attention_multiplier=0.125,
        position_embedding_type="nope",
        tie_word_embeddings=True,
    ), dict(STEADY, prompt=100, embedding=0.03)
    yield "granite-hybrid-dense-tiny", hf.GraniteMoeHybridConfig(
        **hybrid("mma", num_local_experts=0, mamba_n_groups=2, mamba_d_conv=3),
        mamba_conv_bias=False,
        mamba_proj_bias=True,
        attention_bias=True,
        position_embedding_type="rope",
        residual_multiplier=0.25,
        tie_word_embeddings=False,
    ), STEADY
    yield "granite-hybrid-wide-tiny", hf.GraniteMoeHybridConfig(
        **hybrid(
            "mam",
            num_local_experts=3,
            num_key_value_heads=2,
            mamba_expand=3,
            mamba_n_heads=6,
            mamba_d_state=48,
            mamba_n_groups=3,
        ),
        attention_multiplier=0.0625,
        embedding_multiplier=2.0,
        residual_multiplier=0.5,
    ), dict(STEADY, prompt=70)


def nemotron_h():
    """Yields layers that are M (Mamba-2), * (attention), - (MLP) or E (experts)."""

    def blocks(pattern, **changes):
        names = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
        own = shape(
            layers_block_type=[names[letter] for letter in pattern],
            mamba_num_heads=4,
            mamba_head_dim=16,
            ssm_state_size=16,
            n_groups=2,
            chunk_size=16,
            head_dim=16,
            layer_norm_epsilon=1e-5,
        )
        for key in ("rms_norm_eps", "rope_parameters", "num_hidden_layers"):
            own.pop(key)
        return {**own, **changes}

    yield "nemotron-h-tiny", hf.NemotronHConfig(**blocks("M-M*-")), dict(STEADY, prompt=70)
    yield "nemotron-h-moe-tiny", hf.NemotronHConfig(
        **blocks("MEM*E", num_key_value_heads=2, n_groups=1),
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=48,
        routed_scaling_factor=1.5,
    ), STEADY
    yield "nemotron-h-odd-tiny", hf.NemotronHConfig(
        **blocks("MEM-*", mamba_num_heads=6, n_groups=3, ssm_state_size=32, conv_kernel=3),
        use_conv_bias=False,
        use_bias=True,
        mlp_bias=False,
        n_routed_experts=6,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=16,
        norm_topk_prob=False,
        tie_word_embeddings=True,
    ), dict(STEADY, embedding=0.05)
