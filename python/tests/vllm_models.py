"""Makes models for the tests of the vLLM plugin, and tells whether it runs on a GPU."""
import shutil

import torch
import walsh.torch
from vllm.platforms import current_platform

GPU = current_platform.is_cuda()
# Several models share the memory of a GPU, and tests that run beside each other. Kernels are
# compiled when they are needed: vLLM would compile all that a server might need first.
SHARED = dict(gpu_memory_utilization=0.05, kv_cache_memory_bytes=1 << 30,
              kernel_config={"enable_jit_warmup": False}) if GPU else {}


def config_of(family):
    """Describes a small model of two layers that two processes can share: blocks of 128 columns."""
    import transformers

    sizes = dict(vocab_size=8192, hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=64, intermediate_size=512,
                 max_position_embeddings=512, tie_word_embeddings=False, initializer_range=0.05)
    recurrent = dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
                     linear_num_value_heads=4, linear_key_head_dim=64, linear_value_head_dim=64)
    experts = dict(moe_intermediate_size=256, num_experts=4, num_experts_per_tok=2,
                   norm_topk_prob=True)
    if family == "qwen3_moe":
        return transformers.Qwen3MoeConfig(decoder_sparse_step=1, **experts, **sizes)
    if family == "mixtral":
        return transformers.MixtralConfig(num_local_experts=4, num_experts_per_tok=2,
                                          sliding_window=None,
                                          **{**sizes, "intermediate_size": 256})
    if family == "qwen3_5":
        return transformers.Qwen3_5TextConfig(**recurrent, **sizes)
    return transformers.LlamaConfig(**sizes)


def random_model(tokenizer, place, family="llama"):
    """Writes a checkpoint of random weights."""
    import transformers

    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config_of(family))
    model.to(torch.bfloat16 if family == "qwen3_5" else torch.float32).save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, place)
    return place


def stored_by_transformers(folder, place, exact=True, **options):
    """Saves the folder at `place`, compressed by transformers; returns a function from tokens to
    the logits that it has there, with inputs of products in float32 or, not exactly, in int8."""
    import transformers
    from walsh.transformers import WalshConfig

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=WalshConfig(**options))
    model.save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, place)
    for part in model.modules():
        if isinstance(part, walsh.torch.Linear):
            part.exact = exact

    def logits(tokens):
        with torch.inference_mode():
            return model(torch.tensor([tokens])).logits[0, :-1].double()

    return logits
