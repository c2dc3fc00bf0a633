"""Defines operators of experts for a test bed without vLLM's CUDA libraries (vllm_c_shim.py), in
Triton.

A step of a model of experts calls each of them once a layer, so one kernel has to do: bfloat16
would look slower than it is, otherwise.
"""
import torch
import triton
import triton.language as tl


@triton.jit
def _route_kernel(logits, weights, ids, experts, row_step, CHOSEN: tl.constexpr,
                  RENORMALIZE: tl.constexpr, LANES: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, LANES)
    x = tl.load(logits + row * row_step + lane, mask=lane < experts, other=float("-inf"))
    x = x.to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))
    p = p / tl.sum(p, 0)
    place = tl.full([LANES], -1, tl.int32)  # each expert has its place among the chosen ones
    for i in tl.static_range(CHOSEN):
        best = lane == tl.argmax(x, 0)
        place = tl.where(best, i, place)
        x = tl.where(best, float("-inf"), x)
    if RENORMALIZE:
        p = p / tl.sum(tl.where(place >= 0, p, 0.0), 0)
    tl.store(weights + row * CHOSEN + place, p, mask=place >= 0)
    tl.store(ids + row * CHOSEN + place, lane, mask=place >= 0)


def topk_softmax(weights, ids, expert_indices, logits, renormalize=False, bias=None,
                 is_padding=None):
    """Chooses experts, and weighs them by their probabilities."""
    assert bias is None
    rows, experts = logits.shape
    if rows:
        _route_kernel[rows,](logits, weights, ids, experts, logits.stride(0), ids.shape[1],
                             bool(renormalize), triton.next_power_of_2(experts), num_warps=1)


def moe_sum(x, out, topk_ids=None, expert_map=None):
    """Adds up the experts' results for each row."""
    torch.sum(x, dim=1, out=out)


@triton.jit
def _align_kernel(ids, sorted_ids, expert_ids, padded_count, number, room, blocks,
                  EXPERTS: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
                  CHUNK: tl.constexpr):
    """Each expert counts all choices by itself, and places its own."""
    own = tl.program_id(0)
    lane, bins = tl.arange(0, CHUNK), tl.arange(0, BINS)
    counts = tl.zeros([BINS], tl.int32)
    for first in range(0, number, CHUNK):
        chosen = tl.load(ids + first + lane, mask=first + lane < number, other=EXPERTS)
        counts += tl.histogram(tl.where(chosen < 0, EXPERTS, chosen).to(tl.int32), BINS)
    counts = tl.where(bins < EXPERTS, counts, 0)
    padded = (counts + BLOCK - 1) // BLOCK * BLOCK
    start = tl.sum(tl.where(bins < own, padded, 0), 0)
    end = start + tl.sum(tl.where(bins == own, padded, 0), 0)
    total = tl.sum(padded, 0)
    place = start
    for first in range(0, number, CHUNK):
        chosen = tl.load(ids + first + lane, mask=first + lane < number, other=EXPERTS)
        mine = (chosen == own).to(tl.int32)
        tl.store(sorted_ids + place + tl.cumsum(mine, 0) - mine, first + lane, mask=mine != 0)
        place += tl.sum(mine, 0)
    for at in range(place, end, CHUNK):
        tl.store(sorted_ids + at + lane, number, mask=at + lane < end)
    for at in range(start // BLOCK, end // BLOCK, CHUNK):
        tl.store(expert_ids + at + lane, own, mask=at + lane < end // BLOCK)
    if own == EXPERTS - 1:
        tl.store(padded_count, total)
        for at in range(total, room, CHUNK):
            tl.store(sorted_ids + at + lane, number, mask=at + lane < room)
        for at in range(total // BLOCK, blocks, CHUNK):
            tl.store(expert_ids + at + lane, -1, mask=at + lane < blocks)


def moe_align_block_size(topk_ids, experts, block, sorted_ids, expert_ids, padded_count,
                         expert_map=None, scatter_idx=None):
    """Sorts the numbers of choices by expert; those of every expert are filled up to whole
    blocks."""
    assert scatter_idx is None
    if expert_map is not None:
        topk_ids = expert_map[topk_ids.long()]
    number = topk_ids.numel()
    chunk = min(1024, max(32, triton.next_power_of_2(number)))
    _align_kernel[experts,](topk_ids, sorted_ids, expert_ids, padded_count, number,
                            sorted_ids.numel(), expert_ids.numel(), experts,
                            triton.next_power_of_2(experts + 1), block, chunk)


@triton.jit
def _silu_kernel(x, out, half, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    gate = tl.load(x + row * 2 * half + lane, mask=lane < half).to(tl.float32)
    up = tl.load(x + (row * 2 + 1) * half + lane, mask=lane < half)
    gate = (gate / (1.0 + tl.exp(-gate))).to(up.dtype)
    tl.store(out + row * half + lane, gate * up, mask=lane < half)


def silu_and_mul(out, x):
    """Multiplies one half of each row, behind SiLU, by the other half."""
    half = x.shape[-1] // 2
    rows = x.numel() // (2 * half)
    if x.is_cuda and x.is_contiguous() and rows:
        _silu_kernel[rows, triton.cdiv(half, 1024)](x, out, half, 1024)
    else:
        out.copy_(torch.nn.functional.silu(x[..., :half]) * x[..., half:])
