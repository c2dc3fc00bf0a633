// Instructions that extract and combine parts of words.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace walsh::cuda {

// In assembly, because the compiler would mask both halves of a selector separately.
__device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t select) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(select));
  return out;
}

// A left shift as a multiplication, which uses another pipe than shifts, masks and permutes.
template <int Bits>
__device__ __forceinline__ uint32_t shift_by_product(uint32_t word) {
  uint32_t out;
  asm("mul.lo.u32 %0, %1, %2;" : "=r"(out) : "r"(word), "n"(1 << Bits));
  return out;
}

// The upper half of a word, by a dot product: shifts and permutes share a pipe with half the
// throughput.
__device__ __forceinline__ uint32_t upper_half(uint32_t word) {
  return __dp2a_hi(word, 0x01000000u, 0u);
}

// Converts eight bytes, which are numbers plus 128, to f16.
__device__ __forceinline__ void bytes_to_f16(uint32_t low, uint32_t high, uint32_t (&pairs)[4]) {
  const __half2 bias = __float2half2_rn(1152.0f);  // 0x6400 + u is 1024 + u
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    uint32_t pair = __byte_perm(p < 2 ? low : high, 0x64646464u, p % 2 ? 0x4342 : 0x4140);
    const __half2 value = __hsub2(*reinterpret_cast<__half2*>(&pair), bias);
    pairs[p] = *reinterpret_cast<const uint32_t*>(&value);
  }
}

}  // namespace walsh::cuda
