// Computes the softmax of rows over a long sequence, for the decode kernels and the persistent
// kernel. A warp takes tiles of 16 positions for up to 8 query heads, with an online softmax. The
// warps of a block combine theirs to one part of a row. The block that finishes last combines the
// parts of all blocks in order.
#pragma once

#include "kernels/cuda/attention/options.cuh"
#include "kernels/cuda/attention/tile.cuh"

namespace walsh::cuda {

inline constexpr int kWarpTokens = 16;

// Holds a warp's running softmax. Lane 4 g + t has heads 2 t and 2 t + 1, and of the sums rows g
// and g + 8 of each 16 values.
template <int Dim>
struct Running {
  float largest[2] = {kNothing, kNothing};
  float total[2] = {0, 0};  // This sum is over this lane's positions.
  float sum[Dim / 16][4] = {};
};

// Converts the logits of a tile, of which positions in [low, high) are visible, to softmax weights,
// 2^shift times as large if `Shifted`, and passes them to take(weights of heads 2 t and 2 t + 1,
// for row g and then row g + 8). Earlier sums are rescaled to the new largest logit.
template <int Dim, bool Shifted, typename Take>
__device__ __forceinline__ void weigh_tile(const float (&s)[4], int low, int high, float scale,
                                           int lane, Running<Dim>& run, float shift,
                                           const Take& take) {
  const int g = lane / 4;
  float factor[2], p[4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float s0 = g >= low && g < high ? s[h] : kNothing;
    const float s1 = g + 8 >= low && g + 8 < high ? s[h + 2] : kNothing;
    float largest = fmaxf(s0, s1);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    largest = fmaxf(largest, run.largest[h]);
    const float base = exponent_base(largest, scale);
    factor[h] = power_of_two(__fmaf_rn(run.largest[h], scale, -base));
    const float less = Shifted ? shift - base : -base;
    p[h] = power_of_two(__fmaf_rn(s0, scale, less));
    p[h + 2] = power_of_two(__fmaf_rn(s1, scale, less));
    run.largest[h] = largest;
    run.total[h] = __fmaf_rn(run.total[h], factor[h], p[h] + p[h + 2]);
  }
  take(p);
  if (!__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
  for (int d = 0; d < Dim / 16; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      run.sum[d][e] *= factor[e % 2];
}

// Calls weigh_tile and rounds the weights to fp16, for operand b of the product with the values.
template <int Dim, bool Shifted = false>
__device__ __forceinline__ void weigh_tile(const float (&s)[4], int low, int high, float scale,
                                           int lane, Running<Dim>& run, uint32_t& b0, uint32_t& b1,
                                           float shift = 0) {
  weigh_tile<Dim, Shifted>(s, low, high, scale, lane, run, shift, [&](const float(&p)[4]) {
    b0 = transpose8x8(pack_halves(p[0], p[1]));
    b1 = transpose8x8(pack_halves(p[2], p[3]));
  });
}

// Returns a head's total over the positions of all lanes.
__device__ __forceinline__ float sum_totals(float total) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2)
    total += __shfl_xor_sync(~0u, total, distance);
  return total;
}

// Describes a block's part of a row. Readers divide the visible positions among the blocks.
struct DecodePart {
  int row, sequence;
  int kv_head, first_head, heads;
  int begin, end;  // They bound the visible positions of the row.
  int active = 0;  // This many blocks work on this row.

  explicit __device__ __forceinline__ DecodePart(const DecodeArgs& args) {
    row = static_cast<int>(blockIdx.z);
    kv_head = static_cast<int>(blockIdx.y) / args.tiles;
    const int tile = static_cast<int>(blockIdx.y) % args.tiles;
    first_head = kv_head * args.group + tile * kTileHeads;
    heads = min(kTileHeads, args.group - tile * kTileHeads);
    const int position = args.rows.positions[row];
    end = position + 1;
    sequence = args.rows.sequences[row];
    begin = first_seen(args.rule, position);
  }
};

// Lays out shared memory. It holds float sums[warp][head][stride] and float2 [warp][head], and
// later, in the same place, float factor[head][part] and inverse[head]. Results follow after both.
template <int Dim, int Warps>
struct PartsShape {
  static constexpr int kSumStride = Dim + 4;  // A head has this many floats.
  static constexpr int kState = Warps * kTileHeads * kSumStride;
  static constexpr int kFloats = kState + 2 * Warps * kTileHeads > kTileHeads*(kMaxSplits + 1)
                                     ? kState + 2 * Warps* kTileHeads
                                     : kTileHeads*(kMaxSplits + 1);
};

template <int Dim, int Warps>
__device__ __forceinline__ void share_sums(const Running<Dim>& run, float* sums, int warp,
                                           int lane) {
  using Shape = PartsShape<Dim, Warps>;
  auto* state = reinterpret_cast<float2*>(sums + Shape::kState);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = sum_totals(run.total[h]);
    const int slot = warp * kTileHeads + 2 * t + h;
    if (g == 0) state[slot] = make_float2(run.largest[h], total);
#pragma unroll
    for (int d = 0; d < Dim / 16; ++d) {
      sums[slot * Shape::kSumStride + 16 * d + g] = run.sum[d][h];
      sums[slot * Shape::kSumStride + 16 * d + g + 8] = run.sum[d][h + 2];
    }
  }
}

__device__ __forceinline__ void add_scaled(float4& sum, const float4& v, float factor) {
  sum.x = __fmaf_rn(v.x, factor, sum.x);
  sum.y = __fmaf_rn(v.y, factor, sum.y);
  sum.z = __fmaf_rn(v.z, factor, sum.z);
  sum.w = __fmaf_rn(v.w, factor, sum.w);
}

__device__ __forceinline__ void store_scaled(float* to, const float4& v, float factor) {
  reinterpret_cast<float2*>(to)[0] = make_float2(v.x * factor, v.y * factor);
  reinterpret_cast<float2*>(to)[1] = make_float2(v.z * factor, v.w * factor);
}

// Finds parts in the scratch memory, which has values [row][head][split][head_dim], then float2 of
// largest logit and total [row][head][split].
struct Partials {
  float* values;
  float2* state;

  __device__ Partials(const DecodeArgs& args, int row, int head) {
    const int64_t rows = static_cast<int64_t>(gridDim.z) * args.heads * gridDim.x;
    const int64_t first = (static_cast<int64_t>(row) * args.heads + head) * gridDim.x;
    values = args.partials + first * args.head_dim;
    state = reinterpret_cast<float2*>(args.partials + rows * args.head_dim) + first;
  }
};

// Combines the warps' sums to one part. If it is the only part, it is the result, given to
// result(head of the tile, column, four sums, their factor).
template <int Dim, int Warps, typename Result>
__device__ __forceinline__ void join_warps(const DecodeArgs& args, const DecodePart& part,
                                           const float* sums, const Result& result) {
  using Shape = PartsShape<Dim, Warps>;
  const auto* state = reinterpret_cast<const float2*>(sums + Shape::kState);
  const int dim = args.head_dim, quads = dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < part.heads * quads; i += Warps * 32) {
    const int head = i / quads, column = 4 * (i % quads);
    float largest = kNothing, total = 0;
    for (int w = 0; w < Warps; ++w)
      largest = fmaxf(largest, state[w * kTileHeads + head].x);
    const float base = exponent_base(largest, args.rule.scale);
    float4 sum = make_float4(0, 0, 0, 0);
    for (int w = 0; w < Warps; ++w) {
      const int slot = w * kTileHeads + head;
      const float factor = power_of_two(__fmaf_rn(state[slot].x, args.rule.scale, -base));
      total = __fmaf_rn(state[slot].y, factor, total);
      add_scaled(sum, *reinterpret_cast<const float4*>(sums + slot * Shape::kSumStride + column),
                 factor);
    }
    if (part.active == 1) {
      total += sink_weight(args.rule, part.first_head + head, largest);
      result(head, column, sum, 1.0f / total);
    } else {
      const Partials to(args, part.row, part.first_head + head);
      store_scaled(to.values + blockIdx.x * static_cast<int64_t>(dim) + column, sum, 1.0f);
      if (column == 0) to.state[blockIdx.x] = make_float2(largest, total);
    }
  }
}

// Computes the factors of the parts of a head from their largest logits and totals. Returns the
// inverse of the head's total. One warp calls it.
__device__ __forceinline__ float weigh_parts(const AttentionRule& rule, int head,
                                             const float2* state, int parts, float* factor,
                                             int lane) {
  float largest = kNothing, total = 0;
  for (int s = lane; s < parts; s += 32)
    largest = fmaxf(largest, __ldcg(&state[s]).x);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
  const float base = exponent_base(largest, rule.scale);
  for (int s = lane; s < parts; s += 32) {
    const float2 of = __ldcg(&state[s]);
    factor[s] = power_of_two(__fmaf_rn(of.x, rule.scale, -base));
    total = __fmaf_rn(of.y, factor[s], total);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    total += __shfl_xor_sync(~0u, total, distance);
  return 1.0f / (total + sink_weight(rule, head, largest));
}

// Combines the parts of all blocks in their order.
template <int Warps, typename Result>
__device__ __forceinline__ void join_parts(const DecodeArgs& args, const DecodePart& part,
                                           float* memory, int warp, int lane,
                                           const Result& result) {
  // Its shape is [head], after factor[head][part].
  float* inverse = memory + kTileHeads * kMaxSplits;
  for (int head = warp; head < part.heads; head += Warps) {
    const float2* state = Partials(args, part.row, part.first_head + head).state;
    const float of_head = weigh_parts(args.rule, part.first_head + head, state, part.active,
                                      memory + head * kMaxSplits, lane);
    if (lane == 0) inverse[head] = of_head;
  }
  __syncthreads();
  const int dim = args.head_dim, quads = dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < part.heads * quads; i += Warps * 32) {
    const int head = i / quads, column = 4 * (i % quads);
    const float* values = Partials(args, part.row, part.first_head + head).values + column;
    const float* factor = memory + head * kMaxSplits;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 16
    for (int s = 0; s < part.active; ++s) {
      const auto* v = reinterpret_cast<const float4*>(values + s * static_cast<int64_t>(dim));
      add_scaled(sum, __ldcg(v), factor[s]);
    }
    result(head, column, sum, inverse[head]);
  }
}

// Runs all steps of combining. Returns true, before a barrier, in the block that has delivered the
// row's results.
template <int Dim, int Warps, typename Result>
__device__ __forceinline__ bool finish_part(const DecodeArgs& args, const DecodePart& part,
                                            const Running<Dim>& run, float* memory, int warp,
                                            int lane, const Result& result) {
  __shared__ bool last;
  __syncthreads();
  share_sums<Dim, Warps>(run, memory, warp, lane);
  __syncthreads();
  join_warps<Dim, Warps>(args, part, memory, result);
  if (part.active == 1) return true;

  __threadfence();
  __syncthreads();
  int32_t* arrived = args.arrived + blockIdx.z * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) last = atomicAdd(arrived, 1) == part.active - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  join_parts<Warps>(args, part, memory, warp, lane, result);
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}

}  // namespace walsh::cuda
