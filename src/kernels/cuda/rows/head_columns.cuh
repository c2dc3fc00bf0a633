// Holds a head in the registers of a warp in the order of its columns, and rotates it, as attention
// to coded keys and values needs it.
#pragma once

#include "kernels/cuda/rows/rope.cuh"

namespace walsh::cuda {

// Holds a head; lane l has columns 32 r + l.
template <int Dim>
struct HeadColumns {
  float v[Dim / 32];

  // Takes a head from pairs. If all pairs are turned, or none, the columns are already where they
  // are needed: the first half, then the second. Otherwise they pass through shared memory.
  __device__ __forceinline__ HeadColumns(const Pairs& x, const HeadPairs& pairs, float* shared,
                                         int lane) {
    if (pairs.turned == 0 || pairs.turned == pairs.half) {
#pragma unroll
      for (int j = 0; j < Dim / 64; ++j) {
        v[j] = x.a[j];
        v[j + Dim / 64] = x.b[j];
      }
      return;
    }
    store_pairs(x, shared, pairs, lane, [](float value) { return value; });
    __syncwarp();
#pragma unroll
    for (int r = 0; r < Dim / 32; ++r)
      v[r] = shared[32 * r + lane];
  }

  // Rotates like walsh::Rotator, in the same order of additions. factor(r) is for column 32 r +
  // lane.
  template <typename Factor>
  __device__ __forceinline__ void rotate(int block, int lane, const Factor& factor) {
    if (block == 0) return;
#pragma unroll
    for (int r = 0; r < Dim / 32; ++r)
      v[r] *= factor(r);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
      for (int r = 0; r < Dim / 32; ++r) {
        const float other = __shfl_xor_sync(~0u, v[r], distance);
        v[r] = (lane & distance) != 0 ? other - v[r] : v[r] + other;
      }
    }
    if (block == 32) return;
#pragma unroll
    for (int step = 1; step < Dim / 32; step *= 2) {
#pragma unroll
      for (int r = 0; r < Dim / 32; ++r) {
        if ((r & step) != 0) continue;
        const float a = v[r], b = v[r + step];
        v[r] = a + b;
        v[r + step] = a - b;
      }
    }
  }

  template <typename T, typename Convert>
  __device__ __forceinline__ void store(T* to, int lane, Convert convert) const {
#pragma unroll
    for (int r = 0; r < Dim / 32; ++r)
      to[32 * r + lane] = convert(v[r]);
  }
};

}  // namespace walsh::cuda
