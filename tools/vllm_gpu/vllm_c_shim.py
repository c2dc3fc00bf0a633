"""Defines operators of vLLM's CUDA libraries, written with PyTorch for a test bed that lacks them.

These are the ones that Llama-like models and experts reach even where custom operators are off.
`vllm/_C_stable_libtorch.py` imports this module in place of the library of that name.
"""
import torch
import triton
import vllm_c_experts

_FLAGS = ("cutlass_scaled_mm_supports_fp8", "cutlass_scaled_mm_supports_fp4",
          "cutlass_scaled_mm_supports_block_fp8", "cutlass_group_gemm_supported",
          "mxfp4_experts_quant_supported")
_LIBRARIES = {}


def _define(namespace, schema, function, key="CompositeExplicitAutograd", fake=True):
    """Registers an operator; those that only write to their arguments need no more for tracing."""
    if namespace not in _LIBRARIES:
        _LIBRARIES[namespace] = torch.library.Library(namespace, "FRAGMENT")
    library = _LIBRARIES[namespace]
    name = library.define(schema)
    library.impl(name, function, key)
    if fake and schema.endswith("-> ()"):
        torch.library.register_fake(f"{namespace}::{name}", lambda *a, **k: None, lib=library)


# Kernels of recurrent layers would be compiled with up to 72 choices of their sizes each, which
# takes minutes; the first one has to do.

def _autotune(configs, *arguments, **options):
    return _triton_autotune(configs[:1], *arguments, **options)


_triton_autotune, triton.autotune = triton.autotune, _autotune


# These operators view memory.

class _Array:
    """Memory that somebody else owns is wrapped as PyTorch and CuPy take it."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "version": 3,
                                         "data": (address, False), "strides": None}


def _view(address, tensor):
    if tensor.numel() == 0:
        return torch.empty_like(tensor, device="cuda")
    elements = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    flat = torch.as_tensor(_Array(address, elements * tensor.element_size()), device="cuda")
    return flat.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def _weak_ref_tensor(tensor):
    return _view(tensor.data_ptr(), tensor)


def _cuda_view(tensor):
    """Returns a view of page-locked host memory, which has one address for both sides."""
    if tensor.numel() and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    view = _view(tensor.data_ptr(), tensor)
    _KEPT.append(tensor)  # the view does not keep the tensor alive
    return view


_KEPT = []
_define("_C", "weak_ref_tensor(Tensor input) -> Tensor", _weak_ref_tensor, "CUDA")
_define("_C", "get_cuda_view_from_cpu_tensor(Tensor cpu_tensor) -> Tensor", _cuda_view, "CPU")


# Norms, activations, positions and penalties follow.

def _normed(x, weight, epsilon):
    x32 = x.float()
    y = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + epsilon)
    return y.to(x.dtype) if weight is None else y.to(weight.dtype) * weight


def _rms_norm(out, x, weight, epsilon):
    out.copy_(_normed(x, weight, epsilon))


def _fused_add_rms_norm(x, residual, weight, epsilon):
    residual.copy_((x.float() + residual.float()).to(residual.dtype))
    x.copy_(_normed(residual, weight, epsilon))


def _gated(function):
    def apply(out, x):
        half = x.shape[-1] // 2
        out.copy_(function(x[..., :half]) * x[..., half:])
    return apply


def _rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset=0,
                      inverse=False):
    cos_sin = cos_sin_cache.index_select(0, positions.flatten())
    cos, sin = (part.unsqueeze(-2).float() for part in cos_sin.chunk(2, -1))
    if inverse:
        sin = -sin
    width = 2 * cos.shape[-1]
    for tensor in (query, key):
        if tensor is None:
            continue
        heads = tensor.view(positions.numel(), -1, head_size)
        x = heads[..., rope_dim_offset:rope_dim_offset + width]
        a, b = x.float().chunk(2, -1) if is_neox else (x[..., ::2].float(), x[..., 1::2].float())
        first, second = a * cos - b * sin, b * cos + a * sin
        both = (torch.cat((first, second), -1) if is_neox
                else torch.stack((first, second), -1).flatten(-2))
        x.copy_(both.to(x.dtype))


_define("_C", "rms_norm(Tensor! result, Tensor input, Tensor? weight, float epsilon) -> ()",
        _rms_norm)
_define("_C", "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor? weight, float epsilon)"
              " -> ()", _fused_add_rms_norm)
_define("_C", "silu_and_mul(Tensor! result, Tensor input) -> ()", vllm_c_experts.silu_and_mul)
_define("_C", "gelu_and_mul(Tensor! result, Tensor input) -> ()",
        _gated(torch.nn.functional.gelu))
_define("_C", "gelu_tanh_and_mul(Tensor! result, Tensor input) -> ()",
        _gated(lambda x: torch.nn.functional.gelu(x, approximate="tanh")))
_define("_C", "rotary_embedding(Tensor positions, Tensor! query, Tensor(b!)? key, int head_size, "
              "Tensor cos_sin_cache, bool is_neox, int rope_dim_offset=0, bool inverse=False)"
              " -> ()", _rotary_embedding)


def _vocab_parallel_embedding(out, ids, weight, first, end, padding, added_first, added_end):
    ids = ids.long()
    own, added = (ids >= first) & (ids < end), (ids >= added_first) & (ids < added_end)
    rows = torch.where(own, ids - first, ids - added_first + (end - first) + padding)
    known = own | added
    out.copy_(weight[torch.where(known, rows, 0)] * known.unsqueeze(1))


_define("_C", "vocab_parallel_embedding(Tensor! result, Tensor input_ids, Tensor weight, "
              "int org_vocab_start_index, int org_vocab_end_index, int num_org_vocab_padding, "
              "int added_vocab_start_index, int added_vocab_end_index) -> ()",
        _vocab_parallel_embedding)


def _apply_repetition_penalties(logits, prompt_mask, output_mask, penalties):
    penalties = penalties.unsqueeze(1).expand_as(logits)
    penalties = torch.where(prompt_mask | output_mask, penalties, 1.0)
    logits.mul_(torch.where(logits > 0, 1.0 / penalties, penalties))


_define("_C", "apply_repetition_penalties_(Tensor! logits, Tensor prompt_mask, Tensor output_mask,"
              " Tensor repetition_penalties) -> ()", _apply_repetition_penalties)

for _flag in _FLAGS:
    _define("_C", f"{_flag}(int capability) -> bool", lambda capability: False)


# Keys and values go to the cache by vLLM's own Triton kernel.

def _reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype,
                             k_scale, v_scale):
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash
    triton_reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping,
                                   kv_cache_dtype, k_scale, v_scale)


_define("_C_cache_ops",
        "reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache,"
        " Tensor slot_mapping, str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()",
        _reshape_and_cache_flash)


# Experts are chosen, their rows sorted and their results added up.

_define("_moe_C", "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, "
                  "Tensor! token_expert_indices, Tensor gating_output, bool renormalize, "
                  "Tensor? bias, Tensor? is_padding=None) -> ()", vllm_c_experts.topk_softmax)
_define("_moe_C", "moe_sum(Tensor input, Tensor! output, Tensor? topk_ids=None, "
                  "Tensor? expert_map=None) -> ()", vllm_c_experts.moe_sum)
_define("_moe_C", "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, "
                  "Tensor! sorted_token_ids, Tensor! experts_ids, Tensor! num_tokens_post_pad, "
                  "Tensor? expert_map=None, Tensor? scatter_idx=None) -> ()",
        vllm_c_experts.moe_align_block_size)

_define("_C_cuda_utils", "get_device_attribute(int attribute, int device) -> int",
        lambda attribute, device: 0)
_define("_C_cuda_utils", "get_max_shared_memory_per_block_device_attribute(int device) -> int",
        lambda device: torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


# Fusion passes of vLLM's compiler name these where they are imported. Nothing here calls them.

def _missing(*values):
    raise NotImplementedError("not in this test bed")


for _schema in (
        "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale, int[]? group=None)",
        "dynamic_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale)",
        "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, "
        "Tensor? scale_ub)",
        "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, "
        "float epsilon)",
        "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual, "
        "Tensor weight, Tensor scale, float epsilon)",
        "rms_norm_dynamic_per_token_quant(Tensor! result, Tensor input, Tensor weight, "
        "Tensor! scale, float epsilon, Tensor? scale_ub, Tensor!? residual)",
        "rms_norm_per_block_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale, "
        "float epsilon, Tensor? scale_ub, Tensor!? residual, int group_size, "
        "bool is_scale_transposed)",
        "silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale)",
        "silu_and_mul_per_block_quant(Tensor! result, Tensor input, Tensor! scale, "
        "int group_size, Tensor? scale_ub, bool is_scale_transposed)",
        "fused_qk_norm_rope(Tensor! qkv, int num_heads_q, int num_heads_k, int num_heads_v, "
        "int head_dim, float eps, Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, "
        "bool is_neox, Tensor position_ids)"):
    _define("_C", _schema + " -> ()", _missing)
