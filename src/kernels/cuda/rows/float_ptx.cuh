// Instructions on floats that have no name in CUDA: thin names for PTX.
#pragma once

namespace walsh::cuda {

// 1 / x within one unit of the last place.
__device__ __forceinline__ float near_reciprocal(float x) {
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

// The larger magnitude, NaN if one is.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(fabsf(a)), "f"(fabsf(b)));
  return out;
}

}  // namespace walsh::cuda
