// Extracts and combines parts of words with single instructions.
#pragma once

#include <cstdint>

namespace walsh::cuda {

// Assembly is used because the compiler would mask both halves of a selector separately.
__device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t select) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(select));
  return out;
}

// Shifts left by multiplying, which uses another pipe than shifts, masks and permutes.
template <int Bits>
__device__ __forceinline__ uint32_t shift_by_product(uint32_t word) {
  uint32_t out;
  asm("mul.lo.u32 %0, %1, %2;" : "=r"(out) : "r"(word), "n"(1 << Bits));
  return out;
}

// Returns the upper half of a word. A dot product gets it, because shifts and permutes share a pipe
// that has half the throughput.
__device__ __forceinline__ uint32_t upper_half(uint32_t word) {
  return __dp2a_hi(word, 0x01000000u, 0u);
}

}  // namespace walsh::cuda
