// Norm and rotary positions of one head, which is one warp's. Bits are those of the CPU, but for
// the order in which squares are added in double.
#pragma once

#include "kernels/cuda/attention.h"

namespace walsh::cuda {

inline constexpr int kPairs = kMaxHeadDim / 2 / 32;  // of a lane at most: i and i + head_dim / 2

struct Pairs {
  float a[kPairs], b[kPairs];
};

template <typename Load>
__device__ __forceinline__ Pairs load_pairs(const float* x, int half, int lane, const Load& load) {
  Pairs v{};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    v.a[j] = load(x + i);
    v.b[j] = load(x + i + half);
  }
  return v;
}

__device__ __forceinline__ Pairs load_pairs(const float* x, int half, int lane) {
  return load_pairs(x, half, lane, [](const float* p) { return *p; });
}

// The squares are summed in double, as everywhere.
__device__ __forceinline__ void normalize(Pairs& v, const float* gain, float eps, int half,
                                          int lane) {
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j)
    sum += static_cast<double>(v.a[j]) * static_cast<double>(v.a[j]) +
           static_cast<double>(v.b[j]) * static_cast<double>(v.b[j]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const float inverse = static_cast<float>(1.0 / sqrt(sum / (2 * half) + static_cast<double>(eps)));
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    v.a[j] = v.a[j] * inverse * gain[i];
    v.b[j] = v.b[j] * inverse * gain[i + half];
  }
}

// Cosines (a) and sines (b) of a position.
__device__ __forceinline__ Pairs load_angles(const float* cos, const float* sin, int half,
                                             int lane) {
  Pairs angles{};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    angles.a[j] = cos[i];
    angles.b[j] = sin[i];
  }
  return angles;
}

__device__ __forceinline__ void rotate(Pairs& v, const Pairs& angles) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const float a = v.a[j], b = v.b[j];
    v.a[j] = a * angles.a[j] - b * angles.b[j];
    v.b[j] = b * angles.a[j] + a * angles.b[j];
  }
}

template <typename T, typename Convert>
__device__ __forceinline__ void store_pairs(const Pairs& v, T* to, int half, int lane,
                                            Convert convert) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    to[i] = convert(v.a[j]);
    to[i + half] = convert(v.b[j]);
  }
}

}  // namespace walsh::cuda
