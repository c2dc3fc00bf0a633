// Norm and rotary positions of one head, which is one warp's. Bits are those of the CPU, but for
// the order in which squares are added in double.
#pragma once

#include <cuda_fp16.h>

#include "base/half.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

inline constexpr int kPairs = kMaxHeadDim / 2 / 32;  // of a lane at most

// Which columns are the pairs of a head. Of the first `turned` ones, which are rotated, pair i is
// columns i and turned + i; of the others, which stay as they are, turned + i and half + i.
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

// The squares are summed in double, as everywhere.
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

// Cosines (a) and sines (b) of a position, for the pairs that are rotated.
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

// A key or a value as caches hold it, as fp16. What lies beyond its range becomes its largest
// number. A key that is not a number stays NaN, so that whatever sees its position is NaN. A value
// becomes zero, since products with tiles of values multiply those of hidden positions by zero;
// where the row that it was computed from was NaN, so is its key.
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
