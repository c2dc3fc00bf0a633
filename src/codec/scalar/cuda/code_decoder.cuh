// Decodes a lane's packed codes (weights/matrix.h) to int8 operands of tensor core products.
//
// A byte permute is a table lookup: selectors are nibbles whose bit 3 must be clear, and four of
// them give four levels. 16 levels need two permutes and a third that chooses between them (idea:
// ggml's MMVQ), or two products: where bit 3 is set, a permute gives eight times the byte's sign,
// which is zero for bytes below 128. So codes from 8 on and codes below 8 have separate tables, one
// of levels and one of negated levels.
#pragma once

#include <cstdint>

#include "codec/cuda/bytes_to_f16.cuh"
#include "codec/cuda/matrix_code.h"
#include "codec/cuda/permute.cuh"
#include "codec/scalar/words.h"

namespace walsh::cuda {

// Returns a table with the levels of codes below 8, which are negative, negated.
__device__ __forceinline__ LevelTable split_levels(LevelTable table) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    table.words[i] = ~table.words[i] + 0x01010101u;
  return table;
}

// Decodes scalar codes of 2, 3, 4 or 8 bits. Kernels ask of a decoder:
//   kKind                        its name on the host
//   kWords, kVectors             code_words, code_vectors; a row of a chunk has kVectors words
//   kSplit, decode_split         whether levels are better made as two operands, and how
//   decode(words, i, table, ..)  int8 operands of block i of 32 columns from a row's words
//   decode_f16(words, i, ..)     the same as f16 pairs
//   kTable, load_table(from)     whether blocks keep a table in shared memory, and how they get it
//                                before the first barrier
//   kUnitLevels                  whether f16 levels have to be multiplied by MatrixCode::unit
template <int Bits>
struct ScalarDecoder {
  static constexpr DecoderKind kKind = scalar_decoder(Bits);
  static constexpr int kWords = code_words(kKind), kVectors = code_vectors(kKind);
  static constexpr bool kSplit = Bits == 4;
  static constexpr bool kTable = false;
  static constexpr bool kUnitLevels = false;

  // Decodes the levels of columns 32 i + 8 t + r of one row. `low` gets those with r < 4, `high`
  // those with r >= 4.
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
      const uint32_t select = scalar::octet<Bits>(words, i);
      const uint32_t upper = Bits == 3 ? table.words[1] : table.words[0];
      low = permute(table.words[0], upper, select);
      high = permute(table.words[0], upper, upper_half(select));
    }
  }

  // Decodes like decode() for 4-bit codes and split_levels: gives the levels of codes from 8 on
  // with zeros for others, and separately the negated levels of codes below 8.
  static __device__ __forceinline__ void decode_split(uint32_t codes, const LevelTable& table,
                                                      uint32_t& low, uint32_t& high,
                                                      uint32_t& low_below, uint32_t& high_below) {
    const uint32_t select = codes ^ 0x88888888u;
    low = permute(table.words[2], table.words[3], select);
    high = permute(table.words[2], table.words[3], upper_half(select));
    low_below = permute(table.words[0], table.words[1], codes);
    high_below = permute(table.words[0], table.words[1], upper_half(codes));
  }

  // Decodes the f16 levels of columns 32 i + 8 t + r of one row. Pair p has r = 2 p and 2 p + 1.
  // The tables contain the bytes of the levels.
  static __device__ __forceinline__ void decode_f16(const uint32_t* words, int i,
                                                    const LevelTable& low_bytes,
                                                    const LevelTable& high_bytes,
                                                    uint32_t (&pairs)[4]) {
    if constexpr (Bits == 8) {
      bytes_to_f16(words[2 * i] ^ 0x80808080u, words[2 * i + 1] ^ 0x80808080u, pairs);
    } else {
      uint32_t s = scalar::octet<Bits>(words, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t low = bytes_of(low_bytes, s);
        const uint32_t high = bytes_of(high_bytes, s);
        pairs[2 * h] = __byte_perm(low, high, 0x5140);
        pairs[2 * h + 1] = __byte_perm(low, high, 0x7362);
        s >>= 16;
      }
    }
  }

 private:
  // Looks up the four selectors in the low half of `s`.
  static __device__ __forceinline__ uint32_t bytes_of(const LevelTable& table, uint32_t s) {
    if constexpr (Bits <= 3) {
      return __byte_perm(table.words[0], table.words[1], s);
    } else {
      const uint32_t low = s & 0x7777u;
      // Nibble p of the selector takes byte p of the first or the second word.
      const uint32_t which = 0x3210u | ((s & 0x8888u) >> 1);
      return __byte_perm(__byte_perm(table.words[0], table.words[1], low),
                         __byte_perm(table.words[2], table.words[3], low), which);
    }
  }

  static __device__ __forceinline__ uint32_t lookup16(uint32_t select, uint32_t choose,
                                                      const LevelTable& table) {
    const uint32_t lower = permute(table.words[0], table.words[1], select);
    const uint32_t upper = permute(table.words[2], table.words[3], select);
    return permute(lower, upper, choose);
  }
};

}  // namespace walsh::cuda
