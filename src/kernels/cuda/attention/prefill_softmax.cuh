// The online softmax of the prefill kernels. A warp has `kTiles` tiles of 16 queries and loops over
// tiles of `kTokens` positions (constants of Shape, like kDim): lane 4 g + t has rows g and g + 8
// of each tile of queries, and columns 2 t and 2 t + 1 of each 8.
#pragma once

#include "kernels/cuda/attention/prefill.h"
#include "kernels/cuda/attention/tile.cuh"

namespace walsh::cuda::detail {

// Holds a tile's logits, then its softmax weights.
template <typename Shape>
using PrefillLogits = float[Shape::kTiles][Shape::kTokens / 8][4];

// A warp's running softmax; totals are over this lane's columns.
template <typename Shape>
struct PrefillSums {
  float largest[Shape::kTiles][2], total[Shape::kTiles][2] = {};
  float sum[Shape::kTiles][Shape::kDim / 8][4] = {};

  __device__ PrefillSums() {
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i)
      largest[i][0] = largest[i][1] = -std::numeric_limits<float>::infinity();
  }
};

// Applies the cap to a tile's products. A separate instance, because even a branch around it would
// cost all other calls registers.
template <typename Shape, bool Capped>
__device__ __forceinline__ void cap_tile(const LogitCap& cap, PrefillLogits<Shape>& s) {
  if constexpr (!Capped) return;
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i)
#pragma unroll
    for (int n = 0; n < Shape::kTokens / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[i][n][e] = capped(cap, s[i][n][e]);
}

// Converts logits to softmax weights and rescales earlier sums to the new largest logit.
template <typename Shape>
__device__ __forceinline__ void soften(float scale, PrefillSums<Shape>& run,
                                       PrefillLogits<Shape>& s) {
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = run.largest[i][half];
#pragma unroll
      for (int n = 0; n < Shape::kTokens / 8; ++n)
        largest = fmaxf(largest, fmaxf(s[i][n][2 * half], s[i][n][2 * half + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      const float base = exponent_base(largest, scale);
      const float factor = power_of_two(__fmaf_rn(run.largest[i][half], scale, -base));
      run.largest[i][half] = largest;
      float total = 0;
#pragma unroll
      for (int n = 0; n < Shape::kTokens / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[i][n][e] = power_of_two(__fmaf_rn(s[i][n][e], scale, -base));
          total += s[i][n][e];
        }
      }
      run.total[i][half] = __fmaf_rn(run.total[i][half], factor, total);
#pragma unroll
      for (int d = 0; d < Shape::kDim / 8; ++d) {
        run.sum[i][d][2 * half] *= factor;
        run.sum[i][d][2 * half + 1] *= factor;
      }
    }
  }
}

// Sets the logits of positions that a row does not see to minus infinity. `row` is the position of
// the warp's first query, `token` that of the tile. Most tiles are visible completely.
template <typename Shape>
__device__ __forceinline__ void mask_tile(int row, int token, int window, int lane,
                                          PrefillLogits<Shape>& s) {
  const bool oldest_hidden = first_seen(window, row + Shape::kTiles * 16 - 1) > token;
  if (token + Shape::kTokens - 1 <= row && !oldest_hidden) return;
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = row + 16 * i + lane / 4 + 8 * half;
      const int first = first_seen(window, position);
#pragma unroll
      for (int n = 0; n < Shape::kTokens / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int seen = token + 8 * n + 2 * (lane % 4) + e;
          if (seen < first || seen > position)
            s[i][n][2 * half + e] = -std::numeric_limits<float>::infinity();
        }
      }
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void store_result(const PrefillArgs& args, int first, int head, int lane,
                                             const PrefillSums<Shape>& run) {
  const int dim = args.cache.head_dim;
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = run.total[i][half];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      total += sink_weight(args.sinks, head, run.largest[i][half], args.scale);
      const float inverse = 1.0f / total;
      const int row = first + 16 * i + lane / 4 + 8 * half;
      if (row >= args.m) continue;
      float* out = args.out + row * args.ldo + head * dim;
#pragma unroll
      for (int d = 0; d < Shape::kDim / 8; ++d) {
        const int column = 8 * d + 2 * (lane % 4);
        if (column >= dim) break;
        *reinterpret_cast<float2*>(out + column) =
            make_float2(run.sum[i][d][2 * half] * inverse, run.sum[i][d][2 * half + 1] * inverse);
      }
    }
  }
}

}  // namespace walsh::cuda::detail
