// Norm and rope of one head by one warp. Bits equal those of the CPU, except for the order in which
// squares are added in double.
#pragma once

#include <cuda_fp16.h>

#include "base/half.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr int kPairs = kMaxHeadDim / 2 / 32;  // most pairs per lane

// The columns of a head's pairs. Pair i of the first `turned` columns, which are rotated, is
// columns i and turned + i; the remaining pairs, which are not rotated, are columns turned + i and
// half + i.
struct HeadPairs {
  int half, turned;

  __device__ __forceinline__ int first(int i) const { return i < turned ? i : i + turned; }
  __device__ __forceinline__ int second(int i) const { return i + (i < turned ? turned : half); }
};

struct Pairs {
  float a[kPairs], b[kPairs];
};

template <typename Load>
__device__ __forceinline__ Pairs load_pairs(const float* x, const HeadPairs& pairs, int lane,
                                            const Load& load) {
  Pairs v{};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= pairs.half) break;
    v.a[j] = load(x + pairs.first(i));
    v.b[j] = load(x + pairs.second(i));
  }
  return v;
}

__device__ __forceinline__ Pairs load_pairs(const float* x, const HeadPairs& pairs, int lane) {
  return load_pairs(x, pairs, lane, [](const float* p) { return *p; });
}

// Squares are summed in double, as everywhere.
__device__ __forceinline__ void normalize(Pairs& v, const float* gain, float eps,
                                          const HeadPairs& pairs, int lane) {
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j)
    sum += static_cast<double>(v.a[j]) * static_cast<double>(v.a[j]) +
           static_cast<double>(v.b[j]) * static_cast<double>(v.b[j]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const float inverse =
      static_cast<float>(1.0 / sqrt(sum / (2 * pairs.half) + static_cast<double>(eps)));
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= pairs.half) break;
    v.a[j] = v.a[j] * inverse * gain[pairs.first(i)];
    v.b[j] = v.b[j] * inverse * gain[pairs.second(i)];
  }
}

// Loads cosines (a) and sines (b) of a position for the rotated pairs.
__device__ __forceinline__ Pairs load_angles(const float* cos, const float* sin, int turned,
                                             int lane) {
  Pairs angles{};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= turned) break;
    angles.a[j] = cos[i];
    angles.b[j] = sin[i];
  }
  return angles;
}

__device__ __forceinline__ void rotate(Pairs& v, const Pairs& angles, int turned, int lane) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    if (lane + 32 * j >= turned) break;
    const float a = v.a[j], b = v.b[j];
    v.a[j] = a * angles.a[j] - b * angles.b[j];
    v.b[j] = b * angles.a[j] + a * angles.b[j];
  }
}

__device__ __forceinline__ void multiply(Pairs& v, float factor) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    v.a[j] *= factor;
    v.b[j] *= factor;
  }
}

// Converts a key or a value to the cache's fp16. Values beyond its range become its largest number.
// A key that is NaN stays NaN, so that every result that sees its position is NaN. A value that is
// NaN becomes zero, because products with tiles of values multiply hidden positions by zero; where
// the row it was computed from is NaN, its key is NaN too.
__device__ __forceinline__ __half kept_half(float x, bool key) {
  if (x != x) return __float2half_rn(key ? x : 0.0f);
  return __float2half_rn(fminf(fmaxf(x, -kLargestHalf), kLargestHalf));
}

template <typename T, typename Convert>
__device__ __forceinline__ void store_pairs(const Pairs& v, T* to, const HeadPairs& pairs, int lane,
                                            Convert convert) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= pairs.half) break;
    to[pairs.first(i)] = convert(v.a[j]);
    to[pairs.second(i)] = convert(v.b[j]);
  }
}

}  // namespace walsh::cuda
