"""Tiny random configurations of further families, for tools/make_goldens.py: name, config, options.

As in golden_dense.py and golden_experts.py, with smaller shapes.
"""

import transformers as hf

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


def small_configs():
    yield from seed_oss()
    yield from exaone4()


def seed_oss():
    yield "seed-oss-tiny", hf.SeedOssConfig(**shape(), head_dim=16), {}
    yield "seed-oss-bias-tiny", hf.SeedOssConfig(
        **shape(num_attention_heads=4, rope_parameters=dict(YARN)),
        head_dim=8,
        attention_out_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    ), {}
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
    ), dict(drop=["layer_types"], add=dict(sliding_window_pattern=2))
