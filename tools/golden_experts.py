"""Defines tiny random configurations of families with experts, for tools/make_goldens.py: name,
config, options.
"""

import torch
import transformers as hf

SHAPE = dict(
    vocab_size=160,
    hidden_size=64,
    intermediate_size=112,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    num_experts_per_tok=2,
)
ROPE = dict(rope_theta=10000.0, rope_type="default")
YARN = dict(
    rope_theta=10000.0,
    rope_type="yarn",
    factor=4.0,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=32,
)


def shape(**changes):
    return {**SHAPE, "rope_parameters": ROPE, **changes}


def expert_configs():
    yield from qwen_configs()
    yield from llama_like_configs()
    yield from gpt_oss_configs()
    yield from glm_configs()
    yield from deepseek_configs()
    yield from llama4_configs()


def qwen_configs():
    qwen3 = shape(head_dim=24, moe_intermediate_size=48, tie_word_embeddings=True)
    yield "qwen3-moe-tiny", hf.Qwen3MoeConfig(
        **{**qwen3, "num_experts_per_tok": 3}, num_experts=8, norm_topk_prob=True
    ), dict(whole_experts=True)
    yield "qwen3-moe-mixed-tiny", hf.Qwen3MoeConfig(
        **{**qwen3, "num_hidden_layers": 3},
        num_experts=5,
        norm_topk_prob=False,
        attention_bias=True,
        mlp_only_layers=[1],
    ), {}
    yield "qwen3-moe-window-tiny", hf.Qwen3MoeConfig(
        **{**qwen3, "tie_word_embeddings": False, "num_experts_per_tok": 1},
        num_experts=3,
        norm_topk_prob=False,
        use_sliding_window=True,
        sliding_window=14,
    ), dict(dtype=torch.float32)
    qwen2 = shape(moe_intermediate_size=40, shared_expert_intermediate_size=72)
    yield "qwen2-moe-tiny", hf.Qwen2MoeConfig(
        **qwen2, num_experts=6, norm_topk_prob=False, tie_word_embeddings=False
    ), {}
    yield "qwen2-moe-step-tiny", hf.Qwen2MoeConfig(
        **shape(num_hidden_layers=3),
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        num_experts=4,
        norm_topk_prob=True,
        decoder_sparse_step=2,
        use_sliding_window=True,
        sliding_window=9,
        max_window_layers=2,
        tie_word_embeddings=True,
    ), {}
    yield "qwen2-moe-plain-tiny", hf.Qwen2MoeConfig(
        **qwen2, num_experts=3, norm_topk_prob=True, qkv_bias=False, tie_word_embeddings=True
    ), dict(whole_experts=True)


def llama_like_configs():
    yield "mixtral-tiny", hf.MixtralConfig(
        **shape(intermediate_size=56), num_local_experts=4, sliding_window=21
    ), {}
    yield "mixtral-three-tiny", hf.MixtralConfig(
        **shape(intermediate_size=40, num_experts_per_tok=3), num_local_experts=3
    ), {}
    yield "mixtral-wide-tiny", hf.MixtralConfig(
        **shape(intermediate_size=24, num_key_value_heads=1),
        head_dim=32,
        num_local_experts=9,
        tie_word_embeddings=True,
    ), {}
    yield "olmoe-tiny", hf.OlmoeConfig(
        **shape(intermediate_size=40), num_experts=6, norm_topk_prob=False
    ), {}
    yield "olmoe-norm-tiny", hf.OlmoeConfig(
        **shape(intermediate_size=24, num_key_value_heads=4),
        num_experts=7,
        norm_topk_prob=True,
        tie_word_embeddings=True,
    ), {}
    yield "olmoe-bias-tiny", hf.OlmoeConfig(
        **shape(intermediate_size=32, num_experts_per_tok=3, num_key_value_heads=1),
        num_experts=5,
        attention_bias=True,
    ), {}
    granite = dict(
        embedding_multiplier=6.0,
        logits_scaling=2.0,
        residual_multiplier=0.6,
        attention_multiplier=0.2,
    )
    yield "granitemoe-tiny", hf.GraniteMoeConfig(
        **shape(intermediate_size=40), **granite, num_local_experts=5, tie_word_embeddings=True
    ), dict(embedding=0.03)
    yield "granitemoe-three-tiny", hf.GraniteMoeConfig(
        **shape(intermediate_size=24, num_experts_per_tok=3, num_key_value_heads=4),
        **{**granite, "residual_multiplier": 1.3, "embedding_multiplier": 3.0},
        num_local_experts=6,
    ), {}
    yield "granitemoe-bias-tiny", hf.GraniteMoeConfig(
        **shape(intermediate_size=32, num_key_value_heads=1),
        **{**granite, "logits_scaling": 0.7},
        num_local_experts=4,
        attention_bias=True,
    ), {}


def gpt_oss_configs():
    base = shape(intermediate_size=40, rope_parameters=YARN)
    yield "gpt-oss-tiny", hf.GptOssConfig(
        **base, head_dim=24, num_local_experts=4, sliding_window=12, swiglu_limit=1.5
    ), {}
    yield "gpt-oss-full-tiny", hf.GptOssConfig(
        **{**base, "num_key_value_heads": 1, "num_experts_per_tok": 1},
        head_dim=16,
        num_local_experts=3,
        sliding_window=20,
        swiglu_limit=2.0,
        swiglu_alpha=1.1,
        layer_types=["full_attention", "sliding_attention"],
    ), {}
    yield "gpt-oss-plain-tiny", hf.GptOssConfig(
        **{**base, "rope_parameters": ROPE, "num_experts_per_tok": 3},
        head_dim=32,
        num_local_experts=5,
        sliding_window=30,
        swiglu_limit=1.0,
        attention_bias=False,
        tie_word_embeddings=True,
    ), {}


def glm_configs():
    base = shape(moe_intermediate_size=32)
    del base["rope_parameters"]
    yield "glm4-moe-tiny", hf.Glm4MoeConfig(
        **{**base, "num_experts_per_tok": 3},
        rope_parameters=dict(ROPE, partial_rotary_factor=0.5),
        head_dim=32,
        n_routed_experts=8,
        n_shared_experts=2,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=1.8,
        first_k_dense_replace=1,
        use_qk_norm=True,
        attention_bias=True,
    ), {}
    yield "glm4-moe-free-tiny", hf.Glm4MoeConfig(
        **base,
        rope_parameters=dict(ROPE, partial_rotary_factor=0.25),
        head_dim=16,
        n_routed_experts=5,
        norm_topk_prob=False,
        routed_scaling_factor=0.7,
        first_k_dense_replace=0,
        tie_word_embeddings=True,
    ), {}
    yield "glm4-moe-late-tiny", hf.Glm4MoeConfig(
        **{**base, "num_hidden_layers": 3, "num_key_value_heads": 1},
        rope_parameters=dict(ROPE, partial_rotary_factor=0.75),
        head_dim=32,
        n_routed_experts=6,
        n_group=3,
        topk_group=1,
        routed_scaling_factor=1.2,
        first_k_dense_replace=2,
    ), dict(whole_experts=True)


def deepseek_configs():
    base = shape(
        moe_intermediate_size=32,
        num_key_value_heads=4,
        kv_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
    )
    yarn = dict(YARN, mscale=0.7, mscale_all_dim=0.9)
    yield "deepseek-v2-tiny", hf.DeepseekV2Config(
        **{**base, "rope_parameters": yarn, "v_head_dim": 24},
        q_lora_rank=None,
        n_routed_experts=4,
        n_shared_experts=2,
        first_k_dense_replace=1,
    ), {}
    yield "deepseek-v2-groups-tiny", hf.DeepseekV2Config(
        **{**base, "num_experts_per_tok": 3, "v_head_dim": 8},
        q_lora_rank=40,
        n_routed_experts=6,
        n_shared_experts=1,
        topk_method="group_limited_greedy",
        n_group=3,
        topk_group=2,
        routed_scaling_factor=1.6,
        attention_bias=True,
    ), dict(whole_experts=True)
    yield "deepseek-v2-dense-tiny", hf.DeepseekV2Config(
        **{**base, "qk_rope_head_dim": 16, "qk_nope_head_dim": 8, "kv_lora_rank": 24},
        q_lora_rank=24,
        n_routed_experts=4,
        first_k_dense_replace=2,
        mlp_bias=True,
        tie_word_embeddings=True,
    ), dict(prompt=90)
    yield "deepseek-v3-tiny", hf.DeepseekV3Config(
        **{**base, "rope_parameters": dict(YARN, mscale=1.0, mscale_all_dim=1.0)},
        q_lora_rank=48,
        n_routed_experts=8,
        n_shared_experts=1,
        n_group=4,
        topk_group=2,
        first_k_dense_replace=1,
    ), dict(fp8=dict(block=[16, 24]))
    yield "deepseek-v3-straight-tiny", hf.DeepseekV3Config(
        **{**base, "num_experts_per_tok": 3},
        q_lora_rank=None,
        rope_interleave=False,
        n_routed_experts=6,
        n_shared_experts=2,
        n_group=2,
        topk_group=1,
        norm_topk_prob=False,
        routed_scaling_factor=0.8,
        first_k_dense_replace=0,
        attention_bias=True,
    ), {}
    yield "deepseek-v3-free-tiny", hf.DeepseekV3Config(
        **{**base, "num_hidden_layers": 3, "v_head_dim": 20},
        q_lora_rank=32,
        n_routed_experts=4,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=2,
        tie_word_embeddings=True,
    ), dict(whole_experts=True)


def llama4_configs():
    llama3 = dict(
        rope_theta=500000.0,
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    )
    base = shape(
        intermediate_size=40,
        intermediate_size_mlp=72,
        head_dim=16,
        pad_token_id=0,
        attn_scale=0.4,
        floor_scale=10,
    )
    yield "llama4-tiny", hf.Llama4TextConfig(
        **{**base, "num_hidden_layers": 3, "rope_parameters": llama3, "num_experts_per_tok": 1},
        num_local_experts=4,
        no_rope_layer_interval=3,
        attention_chunk_size=24,
    ), {}
    yield "llama4-step-tiny", hf.Llama4TextConfig(
        **{**base, "num_hidden_layers": 2, "num_key_value_heads": 4},
        num_local_experts=3,
        interleave_moe_layer_step=2,
        no_rope_layers=[0, 1],
        use_qk_norm=False,
        attn_temperature_tuning=False,
        attention_bias=True,
        attention_chunk_size=70,
        tie_word_embeddings=True,
    ), dict(prompt=90)
    text = {**base, "num_key_value_heads": 1, "num_experts_per_tok": 3, "attn_scale": 0.2}
    text["head_dim"] = 24
    yield "llama4-vision-tiny", hf.Llama4Config(
        text_config=dict(
            **text,
            num_local_experts=4,
            moe_layers=[0],
            no_rope_layers=[1, 0],
            attention_chunk_size=17,
        ),
        vision_config=dict(
            hidden_size=16,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            image_size=28,
            patch_size=14,
            vision_output_dim=32,
            projector_input_dim=32,
            projector_output_dim=32,
        ),
        boi_token_index=150,
        eoi_token_index=151,
        image_token_index=152,
    ), {}
