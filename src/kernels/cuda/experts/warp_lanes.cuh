// The lanes of a warp, as choices know them (experts/lanes.h).
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/experts/lanes.h"

namespace walsh::cuda {

struct WarpLanes {
  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ __forceinline__ int count() { return 32; }
  static __device__ __forceinline__ void sync() { __syncwarp(); }
  static __device__ __forceinline__ float sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      x += __shfl_xor_sync(~0u, x, distance);
    return x;
  }
  static __device__ __forceinline__ float largest(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
  }
  static __device__ __forceinline__ int least(int i) {
    return __reduce_min_sync(~0u, i);
  }
  // By two reductions of the warp: the largest key in the order of floats (both zeros are one, no
  // key is 0), then the lowest index that has it.
  static __device__ __forceinline__ Candidate best(Candidate mine) {
    const uint32_t bits = __float_as_uint(mine.value + 0.0f);
    const uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u;
    const uint32_t top = __reduce_max_sync(~0u, mine.index < 0 ? 0 : key);
    if (top == 0) return {};
    const bool first = mine.index >= 0 && key == top;
    const int index = __reduce_min_sync(~0u, first ? mine.index : std::numeric_limits<int>::max());
    return {__uint_as_float(top >> 31 ? top & 0x7fffffffu : ~top), index};
  }
};

}  // namespace walsh::cuda
