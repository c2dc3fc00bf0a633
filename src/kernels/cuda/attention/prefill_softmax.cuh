// Computes the online softmax of the prefill kernels. A warp has `kTiles` tiles of 16 queries,
// loops over tiles of `kTokens` positions, and has sums for `kColumns` of the columns of values
// (constants of Shape). Lane 4 g + t has rows g and g + 8 of each tile of queries, and columns 2 t
// and 2 t + 1 of each 8.
#pragma once

#include "kernels/cuda/attention/options.cuh"
#include "kernels/cuda/attention/tile.cuh"

namespace walsh::cuda::detail {

// Holds a tile's logits, then its softmax weights.
template <typename Shape>
using PrefillLogits = float[Shape::kTiles][Shape::kTokens / 8][4];

// Holds a warp's running softmax. Totals are over this lane's columns.
template <typename Shape>
struct PrefillSums {
  float largest[Shape::kTiles][2], total[Shape::kTiles][2] = {};
  float sum[Shape::kTiles][Shape::kColumns / 8][4] = {};

  __device__ PrefillSums() {
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i)
      largest[i][0] = largest[i][1] = kNothing;
  }
};

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
      for (int d = 0; d < Shape::kColumns / 8; ++d) {
        run.sum[i][d][2 * half] *= factor;
        run.sum[i][d][2 * half + 1] *= factor;
      }
    }
  }
}

// Names the positions [begin, end).
struct Span {
  int begin, end;
};

// Sets the logits of positions that a row does not see to minus infinity. `row` is the position of
// the warp's first query, and `token` is that of the tile. seen(position) is the Span that the
// query there sees.
template <typename Shape, typename Seen>
__device__ __forceinline__ void mask_tile(int row, int token, int lane, PrefillLogits<Shape>& s,
                                          const Seen& seen) {
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Span span = seen(row + 16 * i + lane / 4 + 8 * half);
#pragma unroll
      for (int n = 0; n < Shape::kTokens / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = token + 8 * n + 2 * (lane % 4) + e;
          if (at < span.begin || at >= span.end) s[i][n][2 * half + e] = kNothing;
        }
      }
    }
  }
}

// Masks a tile for rows that see what the options say, up to themselves. Most tiles are fully
// visible.
template <typename Shape>
__device__ __forceinline__ void mask_tile(const AttentionRule& rule, int row, int token, int lane,
                                          PrefillLogits<Shape>& s) {
  const bool oldest_hidden = first_seen(rule, row + Shape::kTiles * 16 - 1) > token;
  if (token + Shape::kTokens - 1 <= row && !oldest_hidden) return;
  mask_tile<Shape>(row, token, lane, s, [&](int position) {
    return Span{first_seen(rule, position), position + 1};
  });
}

template <typename Shape>
__device__ __forceinline__ void store_result(const RowArgs& args, int first, int head,
                                             int first_column, int lane,
                                             const PrefillSums<Shape>& run) {
  const int dim = args.value_dim;
#pragma unroll
  for (int i = 0; i < Shape::kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = run.total[i][half];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      total += sink_weight(args.rule, head, run.largest[i][half]);
      const float inverse = 1.0f / total;
      const int row = first + 16 * i + lane / 4 + 8 * half;
      if (row >= args.m) continue;
      float* out = args.out + row * args.ldo + head * dim;
#pragma unroll
      for (int d = 0; d < Shape::kColumns / 8; ++d) {
        const int column = first_column + 8 * d + 2 * (lane % 4);
        if (column >= dim) break;
        *reinterpret_cast<float2*>(out + column) =
            make_float2(run.sum[i][d][2 * half] * inverse, run.sum[i][d][2 * half + 1] * inverse);
      }
    }
  }
}

}  // namespace walsh::cuda::detail
