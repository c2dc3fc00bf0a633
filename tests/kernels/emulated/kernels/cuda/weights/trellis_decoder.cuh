// Codes of 2, 3 and 4 bits decoded one by one, for kernels on the host; others have no decoder
// there.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/weights/matrix_code.h"

namespace walsh::cuda {

inline uint32_t permute(uint32_t low, uint32_t high, uint32_t select) {
  return __byte_perm(low, high, select);
}

inline LevelTable split_levels(LevelTable table) {
  return table;
}

template <int Bits>
struct ScalarDecoder {
  static constexpr DecoderKind kKind = Bits == 2   ? DecoderKind::scalar2
                                       : Bits == 3 ? DecoderKind::scalar3
                                                   : DecoderKind::scalar4;
  static constexpr int kWords = 4 * Bits, kVectors = Bits;
  static constexpr bool kSplit = false, kTable = false, kUnitLevels = false;

  // Code r of block i of a row (weights/matrix.h, formats.md).
  static unsigned code(const uint32_t* words, int i, int r) {
    if (Bits == 2) return words[i / 2] >> (4 * r + 2 * (i % 2)) & 3;
    if (Bits == 4) return words[i] >> (4 * r) & 15;
    if (i < 3) return words[i] >> (4 * r) & 7;
    unsigned code = 0;
    for (int bit = 0; bit < 3; ++bit)
      code |= (words[bit] >> (4 * r + 3) & 1) << bit;
    return code;
  }

  static void decode(const uint32_t* words, int i, const LevelTable& table, uint32_t& low,
                     uint32_t& high) {
    low = high = 0;
    for (int r = 0; r < 8; ++r) {
      const unsigned at = code(words, i, r);
      const uint32_t level = table.words[at / 4] >> (8 * (at % 4)) & 255;
      (r < 4 ? low : high) |= level << (8 * (r % 4));
    }
  }
};

}  // namespace walsh::cuda
