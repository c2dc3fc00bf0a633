"""Defines tiny random configurations of dense families, for tools/make_goldens.py: name, config,
options.

Every family has three or more, with different heads, biases, windows and kinds of rope, so that no
part of its function is left at a value at which it does nothing.
"""

import transformers as hf

SHAPE = dict(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
ROPE = dict(rope_theta=10000.0, rope_type="default")
YARN = dict(
    rope_theta=10000.0, rope_type="yarn", factor=8.0, original_max_position_embeddings=32
)
GEMMA = dict(embedding=0.05, gain=0.0)
GEMMA4 = dict(embedding=0.05, scaled_queries=True)


def shape(**changes):
    return {**SHAPE, **changes}


def rope_kinds():
    yield "llama-yarn-tiny", hf.LlamaConfig(
        **shape(), rope_parameters=dict(YARN, beta_fast=8.0, beta_slow=0.5, truncate=False)
    ), {}
    yield "llama-dynamic-tiny", hf.LlamaConfig(
        **shape(max_position_embeddings=32),
        rope_parameters=dict(rope_theta=10000.0, rope_type="dynamic", factor=8.0),
    ), dict(context=256)
    yield "qwen2-yarn-tiny", hf.Qwen2Config(
        **shape(), rope_parameters=dict(YARN, attention_factor=1.3)
    ), {}
    yield "qwen3-yarn-tiny", hf.Qwen3Config(
        **shape(), head_dim=16, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.5)
    ), {}
    yield "qwen3-window-tiny", hf.Qwen3Config(
        **shape(num_key_value_heads=4),
        head_dim=32,
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=15,
        max_window_layers=1,
        rope_parameters=dict(ROPE),
    ), {}
    yield "mistral-full-tiny", hf.MistralConfig(
        **shape(), head_dim=32, sliding_window=None, rope_parameters=dict(ROPE, rope_theta=1e6)
    ), {}


def gemma():
    yield "gemma-tiny", hf.GemmaConfig(
        **shape(num_key_value_heads=1), head_dim=16, rope_parameters=dict(ROPE)
    ), GEMMA
    yield "gemma-wide-tiny", hf.GemmaConfig(
        **shape(num_attention_heads=2, num_key_value_heads=2),
        head_dim=256,
        rope_parameters=dict(ROPE),
    ), GEMMA
    yield "gemma-bias-tiny", hf.GemmaConfig(
        **shape(),
        head_dim=32,
        attention_bias=True,
        tie_word_embeddings=False,
        rope_parameters=dict(ROPE, rope_theta=500000.0),
    ), GEMMA


def gemma3_text(**changes):
    return dict(
        shape(num_hidden_layers=3),
        head_dim=32,
        query_pre_attn_scalar=24,
        sliding_window=11,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(
            full_attention=dict(rope_theta=1e6, rope_type="linear", factor=8.0),
            sliding_attention=dict(ROPE),
        ),
    ) | changes


def vision():
    return dict(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )


def gemma3():
    yield "gemma3-tiny", hf.Gemma3TextConfig(**gemma3_text()), GEMMA
    yield "gemma3-wide-tiny", hf.Gemma3TextConfig(
        **gemma3_text(
            head_dim=256,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_hidden_layers=2,
            query_pre_attn_scalar=256,
            sliding_window=40,
            layer_types=["sliding_attention", "full_attention"],
            final_logit_softcapping=20.0,
        )
    ), GEMMA
    yield "gemma3-old-tiny", hf.Gemma3TextConfig(
        **gemma3_text(
            layer_types=["sliding_attention", "full_attention"] * 2,
            num_hidden_layers=4,
            num_key_value_heads=4,
            head_dim=16,
            attention_bias=True,
            tie_word_embeddings=False,
        )
    ), dict(
        GEMMA,
        drop=["layer_types", "rope_parameters"],
        add=dict(
            sliding_window_pattern=2,
            rope_theta=1e6,
            rope_local_base_freq=10000.0,
            rope_scaling=dict(rope_type="linear", factor=8.0),
        ),
    )
    yield "gemma3-vision-tiny", hf.Gemma3Config(
        text_config=gemma3_text(num_hidden_layers=2, layer_types=None, sliding_window=17),
        vision_config=vision(),
        mm_tokens_per_image=1,
    ), GEMMA


def gemma4_text(**changes):
    return dict(
        shape(num_hidden_layers=4),
        head_dim=16,
        global_head_dim=32,
        sliding_window=11,
        layer_types=["sliding_attention", "full_attention"] * 2,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=128,
        rope_parameters=dict(
            full_attention=dict(
                rope_theta=1e6, rope_type="proportional", partial_rotary_factor=0.25
            ),
            sliding_attention=dict(ROPE),
        ),
    ) | changes


def gemma4():
    yield "gemma4-tiny", hf.Gemma4TextConfig(
        **gemma4_text(
            num_hidden_layers=4,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=16,
            use_double_wide_mlp=True,
            final_logit_softcapping=20.0,
        )
    ), GEMMA4
    yield "gemma4-layers-tiny", hf.Gemma4TextConfig(
        **gemma4_text(
            hidden_size_per_layer_input=24,
            num_hidden_layers=2,
            layer_types=["sliding_attention", "full_attention"],
            tie_word_embeddings=False,
            attention_bias=True,
        )
    ), dict(
        **GEMMA4,
        drop=["per_layer_config"],
        add=dict(global_head_dim=32, num_global_key_value_heads=None),
    )
    experts = gemma4_text(
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        enable_moe_block=True,
        num_experts=5,
        top_k_experts=2,
        moe_intermediate_size=48,
        use_bidirectional_attention="vision",
    )
    yield "gemma4-moe-tiny", hf.Gemma4TextConfig(**experts), GEMMA4
    # The heads are as the published models have them.
    yield "gemma4-wide-tiny", hf.Gemma4TextConfig(
        **gemma4_text(
            head_dim=256,
            global_head_dim=512,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_hidden_layers=4,
            sliding_window=40,
            layer_types=["sliding_attention", "full_attention"] * 2,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=32,
        )
    ), dict(**GEMMA4, prompt=90)
    yield "gemma4-vision-tiny", hf.Gemma4Config(
        text_config=gemma4_text(
            num_hidden_layers=2,
            layer_types=["sliding_attention", "full_attention"],
            attention_k_eq_v=True,
        ),
        vision_config=dict(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=8,
            position_embedding_size=64,
        ),
        audio_config=None,
    ), GEMMA4


def smollm3():
    yield "smollm3-tiny", hf.SmolLM3Config(
        **shape(num_hidden_layers=4), rope_parameters=dict(ROPE, rope_theta=2e6)
    ), {}
    yield "smollm3-bias-tiny", hf.SmolLM3Config(
        **shape(num_key_value_heads=4),
        no_rope_layers=[0, 1],
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=False,
        rope_parameters=dict(YARN),
    ), {}
    yield "smollm3-window-tiny", hf.SmolLM3Config(
        **shape(num_hidden_layers=3, num_key_value_heads=1),
        no_rope_layers=[1, 0, 1],
        use_sliding_window=True,
        sliding_window=9,
        rope_parameters=dict(ROPE),
    ), {}


def granite():
    yield "granite-tiny", hf.GraniteConfig(
        **shape(),
        embedding_multiplier=6.0,
        logits_scaling=4.0,
        residual_multiplier=0.22,
        attention_multiplier=0.11,
        tie_word_embeddings=True,
        rope_parameters=dict(ROPE),
    ), dict(embedding=0.01)
    yield "granite-bias-tiny", hf.GraniteConfig(
        **shape(num_key_value_heads=4, rms_norm_eps=1e-3),
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        residual_multiplier=0.4,
        attention_multiplier=0.3,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters=dict(ROPE, rope_theta=1e6),
    ), dict(embedding=0.02)
    yield "granite-yarn-tiny", hf.GraniteConfig(
        **shape(num_hidden_layers=3, num_key_value_heads=1),
        embedding_multiplier=2.5,
        logits_scaling=0.5,
        residual_multiplier=1.7,
        attention_multiplier=0.2,
        rope_parameters=dict(YARN),
    ), {}


def olmo():
    yield "olmo2-tiny", hf.Olmo2Config(
        **shape(num_key_value_heads=4), rope_parameters=dict(ROPE)
    ), dict(embedding=1.0)
    yield "olmo2-bias-tiny", hf.Olmo2Config(
        **shape(), attention_bias=True, rope_parameters=dict(ROPE, rope_theta=500000.0)
    ), dict(embedding=1.0)
    yield "olmo2-yarn-tiny", hf.Olmo2Config(
        **shape(num_hidden_layers=3, num_key_value_heads=1),
        rope_parameters=dict(YARN),
    ), dict(embedding=1.0)
    both = dict(full_attention=dict(YARN), sliding_attention=dict(ROPE))
    yield "olmo3-tiny", hf.Olmo3Config(
        **shape(num_hidden_layers=4), sliding_window=13, rope_parameters=both
    ), dict(embedding=1.0)
    yield "olmo3-bias-tiny", hf.Olmo3Config(
        **shape(num_key_value_heads=4),
        sliding_window=30,
        layer_types=["full_attention", "sliding_attention"],
        attention_bias=True,
        rope_parameters=dict(full_attention=dict(ROPE), sliding_attention=dict(ROPE)),
    ), dict(embedding=1.0)
    old = dict(YARN, rope_theta=500000.0)
    yield "olmo3-old-tiny", hf.Olmo3Config(
        **shape(num_key_value_heads=1),
        sliding_window=20,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(
            full_attention=old, sliding_attention=dict(rope_theta=500000.0, rope_type="default")
        ),
    ), dict(
        embedding=1.0,
        drop=["rope_parameters"],
        add=dict(
            rope_theta=500000.0, rope_scaling={k: v for k, v in old.items() if k != "rope_theta"}
        ),
    )


def glm():
    for name, kind in (("glm", hf.GlmConfig), ("glm4", hf.Glm4Config)):
        half = dict(ROPE, partial_rotary_factor=0.5)
        yield f"{name}-tiny", kind(**shape(), head_dim=16, rope_parameters=half), {}
        yield f"{name}-plain-tiny", kind(
            **shape(num_key_value_heads=1, num_hidden_layers=3),
            head_dim=32,
            attention_bias=False,
            tie_word_embeddings=True,
            rope_parameters=dict(half, rope_theta=1e6),
        ), dict(embedding=0.1)
        yield f"{name}-whole-tiny", kind(
            **shape(num_key_value_heads=4),
            head_dim=24,
            rope_parameters=dict(ROPE, partial_rotary_factor=1.0),
        ), {}


def ministral():
    growing = dict(YARN, llama_4_scaling_beta=0.3, mscale=1.0, mscale_all_dim=1.0)
    yield "ministral3-tiny", hf.Ministral3Config(
        **shape(), head_dim=16, rope_parameters=growing
    ), {}
    yield "ministral3-window-tiny", hf.Ministral3Config(
        **shape(num_key_value_heads=4),
        head_dim=32,
        sliding_window=21,
        tie_word_embeddings=True,
        rope_parameters=dict(growing, beta_fast=4.0, original_max_position_embeddings=16),
    ), dict(embedding=0.1)
    yield "ministral3-plain-tiny", hf.Ministral3Config(
        **shape(num_key_value_heads=1, num_hidden_layers=3),
        head_dim=16,
        rope_parameters=dict(
            ROPE, llama_4_scaling_beta=0.1, original_max_position_embeddings=50
        ),
    ), {}
    mixed = ["sliding_attention", "full_attention", "sliding_attention"]
    yield "ministral-tiny", hf.MinistralConfig(
        **shape(num_hidden_layers=3),
        head_dim=32,
        sliding_window=14,
        layer_types=mixed,
        rope_parameters=dict(ROPE),
    ), {}
    yield "ministral-tied-tiny", hf.MinistralConfig(
        **shape(num_key_value_heads=1),
        head_dim=32,
        sliding_window=33,
        tie_word_embeddings=True,
        rope_parameters=dict(ROPE, rope_theta=1e8),
    ), dict(embedding=0.1)
    yield "ministral-yarn-tiny", hf.MinistralConfig(
        **shape(num_key_value_heads=4),
        head_dim=24,
        sliding_window=25,
        layer_types=mixed[:2],
        rope_parameters=dict(YARN, factor=2.0),
    ), {}
    text = shape() | dict(head_dim=16, rope_parameters=dict(ROPE), sliding_window=None)
    yield "mistral3-vision-tiny", hf.Mistral3Config(
        text_config=text | dict(model_type="mistral"),
        vision_config=vision() | dict(model_type="pixtral", head_dim=8),
        tie_word_embeddings=False,
    ), {}
    yield "ministral3-vision-tiny", hf.Mistral3Config(
        text_config=text | dict(model_type="ministral3", rope_parameters=growing),
        vision_config=vision() | dict(model_type="pixtral", head_dim=8),
        tie_word_embeddings=False,
    ), {}


def fp8():
    yield "llama-fp8-tiny", hf.LlamaConfig(
        **shape(), rope_parameters=dict(ROPE)
    ), dict(fp8=dict(block=[32, 48]))
    yield "ministral3-fp8-tiny", hf.Ministral3Config(
        **shape(),
        head_dim=16,
        rope_parameters=dict(YARN, llama_4_scaling_beta=0.3),
    ), dict(fp8=dict(block=None))


def dense_configs():
    for family in (fp8, rope_kinds, gemma, gemma3, gemma4, smollm3, granite, olmo, glm, ministral):
        yield from family()
