// Turns int8 values into f16 inputs of a batch.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace walsh::cuda::detail {

// Returns what the values of a vector are multiplied by, where `largest` is the largest scale of
// its groups.
__device__ __forceinline__ float batch_inverse(float largest) {
  constexpr float kLeastScale = 1e-30f;  // The inverse of smaller ones could overflow.
  return largest < kLeastScale ? 0.0f : 1 / largest;
}

__device__ __forceinline__ float signed_byte(uint32_t bytes, int i) {
  return static_cast<float>(static_cast<int8_t>(bytes >> (8 * i) & 255));
}

__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace walsh::cuda::detail
