// Wraps PTX float instructions that CUDA does not expose.
#pragma once

namespace walsh::cuda {

// Returns 1 / x with an error of at most one unit in the last place.
__device__ __forceinline__ float near_reciprocal(float x) {
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

// Returns the value with the larger magnitude, NaN if either is NaN.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(fabsf(a)), "f"(fabsf(b)));
  return out;
}

}  // namespace walsh::cuda
