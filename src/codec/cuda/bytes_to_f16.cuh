// Converts bytes of codes to half floats.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace walsh::cuda {

// Converts eight bytes, each a number plus 128, to f16.
__device__ __forceinline__ void bytes_to_f16(uint32_t low, uint32_t high, uint32_t (&pairs)[4]) {
  const __half2 bias = __float2half2_rn(1152.0f);  // The half 0x6400 + u is 1024 + u.
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    uint32_t pair = __byte_perm(p < 2 ? low : high, 0x64646464u, p % 2 ? 0x4342 : 0x4140);
    const __half2 value = __hsub2(*reinterpret_cast<__half2*>(&pair), bias);
    pairs[p] = *reinterpret_cast<const uint32_t*>(&value);
  }
}

}  // namespace walsh::cuda
