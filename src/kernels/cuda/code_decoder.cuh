// Packed codes of a lane (matrix.h) to int8 operands of tensor core products.
//
// A byte permute is a table: selectors are nibbles whose bit 3 must be clear, four of them give
// four levels. 16 levels need two permutes and a third that chooses between them (idea: ggml's
// MMVQ), or two products: where bit 3 is set, a permute gives eight times the byte's sign, and that
// is zero for bytes below 128. So codes from 8 on and those below are tables of their own, one of
// levels and one of negated levels.
#pragma once

#include <cstdint>

#include "kernels/cuda/matvec.h"

namespace walsh::cuda {

// In assembly, because the compiler would mask both halves of a selector apart.
__device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t select) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(select));
  return out;
}

// Shifts and permutes share a pipe that takes one every other cycle; dot products have another.
__device__ __forceinline__ uint32_t upper_half(uint32_t word) {
  return __dp2a_hi(word, 0x01000000u, 0u);
}

// The levels of codes below 8, which are negative, negated.
__device__ __forceinline__ LevelTable split_levels(LevelTable table) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    table.words[i] = ~table.words[i] + 0x01010101u;
  return table;
}

template <int Bits>
struct CodeDecoder {
  static constexpr int kWords = Bits == 8 ? 8 : Bits;  // of one row in a chunk

  // Levels of columns 32 i + 8 t + r of one row: r < 4 in `low`, r >= 4 in `high`.
  static __device__ __forceinline__ void decode(const uint32_t* words, int i,
                                                const LevelTable& table, uint32_t& low,
                                                uint32_t& high) {
    if constexpr (Bits == 8) {
      low = words[2 * i];
      high = words[2 * i + 1];
    } else if constexpr (Bits == 4) {
      const uint32_t nibbles = words[i];
      const uint32_t select = nibbles & 0x77777777u;
      const uint32_t choose = ((nibbles >> 1) & 0x44444444u) | 0x32103210u;
      low = lookup16(select, choose, table);
      high = lookup16(upper_half(select), upper_half(choose), table);
    } else {
      const uint32_t select = Bits == 3 ? select3(words, i) : select2(words, i);
      const uint32_t upper = Bits == 3 ? table.words[1] : table.words[0];
      low = permute(table.words[0], upper, select);
      high = permute(table.words[0], upper, upper_half(select));
    }
  }

  // As decode, of 4-bit codes and split_levels: the levels of codes from 8 on, zeros for others,
  // and those of codes below.
  static __device__ __forceinline__ void decode_split(uint32_t codes, const LevelTable& table,
                                                      uint32_t& low, uint32_t& high,
                                                      uint32_t& low_below, uint32_t& high_below) {
    const uint32_t select = codes ^ 0x88888888u;
    low = permute(table.words[2], table.words[3], select);
    high = permute(table.words[2], table.words[3], upper_half(select));
    low_below = permute(table.words[0], table.words[1], codes);
    high_below = permute(table.words[0], table.words[1], upper_half(codes));
  }

 private:
  static __device__ __forceinline__ uint32_t select2(const uint32_t* words, int i) {
    return (words[i / 2] >> (2 * (i % 2))) & 0x33333333u;
  }

  static __device__ __forceinline__ uint32_t select3(const uint32_t* words, int i) {
    if (i < 3) return words[i] & 0x77777777u;
    return ((words[0] >> 3) & 0x11111111u) | ((words[1] >> 2) & 0x22222222u) |
           ((words[2] >> 1) & 0x44444444u);
  }

  static __device__ __forceinline__ uint32_t lookup16(uint32_t select, uint32_t choose,
                                                      const LevelTable& table) {
    const uint32_t lower = permute(table.words[0], table.words[1], select);
    const uint32_t upper = permute(table.words[2], table.words[3], select);
    return permute(lower, upper, choose);
  }
};

}  // namespace walsh::cuda
