// Operates on a row's channels after the convolution of a delta net.
#pragma once

#include "kernels/cuda/delta/delta.h"
#include "kernels/delta_norm.h"

namespace walsh::cuda {

// A lane has at most this many values of a head.
inline constexpr int kHeadLane = kMostDeltaDim / 32;

__device__ __forceinline__ float silu_of(float x) {
  return x / (1.0f + expf(-x));
}

// Computes x * scale / sqrt(mean(x^2) + eps) over the `size` values of a head. Lane l of a warp has
// values l, l + 32, ..., and v is 0 beyond them.
__device__ __forceinline__ void scale_head(float (&v)[kHeadLane], int size, const float* scale,
                                           int lane) {
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kHeadLane; ++j)
    sum += static_cast<double>(v[j]) * static_cast<double>(v[j]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const double eps = static_cast<double>(kLengthEpsilon / static_cast<float>(size));
  const auto inverse = static_cast<float>(1.0 / sqrt(sum / size + eps));
#pragma unroll
  for (int j = 0; j < kHeadLane; ++j)
    if (lane + 32 * j < size) v[j] = v[j] * inverse * scale[lane + 32 * j];
}

// Returns log(1 + e^x).
__device__ __forceinline__ float softplus_of(float x) {
  return x > kSoftplusLinear ? x : log1pf(expf(x));
}

// Returns the logarithm of a head's decay.
__device__ __forceinline__ float log_decay(float a, float bias, float rate) {
  return -rate * softplus_of(a + bias);
}

__device__ __forceinline__ float strength_of(float b) {
  return 1.0f / (1.0f + expf(-b));
}

// Holds the logarithm of a head's decay, and the strength of its update.
struct HeadFactors {
  float log_decay, strength;
};
// `a` and `b` are what the matrices gave; an additive net has no a.
__device__ __forceinline__ HeadFactors head_factors(const ConvolveCall& call, float a, float b,
                                                    float bias, float rate) {
  if (!call.dims.additive) return {log_decay(a, bias, rate), strength_of(b)};
  const float strength =
      fminf(fmaxf(softplus_of(b + bias), call.least_strength), call.most_strength);
  return {-rate * strength, strength};
}

}  // namespace walsh::cuda
