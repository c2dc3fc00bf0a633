// The online softmax of rows over a long sequence, shared by the decode kernel and the persistent
// kernel: a warp takes tiles of 16 positions for up to 8 query heads.
#pragma once

#include "kernels/cuda/attention/options.cuh"
#include "kernels/cuda/attention/tile.cuh"

namespace walsh::cuda {

inline constexpr int kWarpTokens = 16;

// A warp's running softmax: lane 4 g + t has heads 2 t and 2 t + 1, and of the sums rows g and g +
// 8 of each 16 values.
template <int Dim>
struct Running {
  float largest[2] = {kNothing, kNothing};
  float total[2] = {0, 0};  // over this lane's positions
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

// weigh_tile with weights rounded to fp16, as operand b of the product with the values.
template <int Dim, bool Shifted = false>
__device__ __forceinline__ void weigh_tile(const float (&s)[4], int low, int high, float scale,
                                           int lane, Running<Dim>& run, uint32_t& b0, uint32_t& b1,
                                           float shift = 0) {
  weigh_tile<Dim, Shifted>(s, low, high, scale, lane, run, shift, [&](const float(&p)[4]) {
    b0 = transpose8x8(pack_halves(p[0], p[1]));
    b1 = transpose8x8(pack_halves(p[2], p[3]));
  });
}

// Sums a head's total over the positions of all lanes.
__device__ __forceinline__ float sum_totals(float total) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2)
    total += __shfl_xor_sync(~0u, total, distance);
  return total;
}

}  // namespace walsh::cuda
