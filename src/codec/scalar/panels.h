// Panels of scalar codes have this layout:
//   bits 2 to 6:  codes[panel][unit of 32 columns][word 0..bits-1][row 0..15], the words of
//                 docs/formats/README.md with their nibbles permuted: nibble p of the file is the
//                 low half of byte p for p < 4 and the high half of byte p - 4 otherwise, so that
//                 one table lookup per half yields 4 consecutive columns of 16 rows
//   bits 8:       codes[panel][quad of 4 columns][row 0..15][4] int8
//   scales, offsets: fp16 [panel][group][row 0..15]; sub-scales are multiplied into scales, the
//                 group then being sub_group.
#pragma once

#include <algorithm>

#include "codec/panels.h"
#include "codec/scalar/words.h"

namespace walsh::detail {

// Moves nibble p of a file word to the low half of byte p (p < 4) or to the high half of byte p -
// 4.
constexpr uint32_t spread_nibbles(uint32_t four) {
  four = (four | four << 8) & 0x00ff00ffu;
  return (four | four << 4) & 0x0f0f0f0fu;
}
constexpr uint32_t permute_nibbles(uint32_t word) {
  return spread_nibbles(word & 0xffffu) | spread_nibbles(word >> 16) << 4;
}
// Returns the shift that brings nibble p of a file word to bit 0 of the permuted word.
constexpr int nibble_shift(int p) {
  return p < 4 ? 8 * p : 8 * (p - 4) + 4;
}

// Gives the words of one row of a unit by index.
struct PanelWords {
  const uint32_t* first;

  uint32_t operator[](int word) const { return first[word * kPanelRows]; }
};

// Returns the code of a weight (8 bits: the int8). `words` is the panel, `lane` is the row in it.
inline int code_at(const uint32_t* words, int bits, int lane, int64_t col) {
  if (bits == 8) {
    const uint32_t quad = words[col / 4 * kPanelRows + lane];
    return static_cast<int8_t>(quad >> (8 * (col % 4)) & 0xffu);
  }
  const PanelWords unit{words + col / kUnitColumns * bits * kPanelRows + lane};
  const int c = static_cast<int>(col % kUnitColumns);
  const int shift = nibble_shift(c % 8);
  return scalar::with_cpu_width(bits, [&](auto width) {
    if constexpr (width == 8) {
      return 0;
    } else {
      uint32_t code = scalar::octet<std::min<int>(width, 4)>(unit, c / 8) >> shift & 15u;
      if constexpr (width > 4) {
        code |= (scalar::upper_octet<width>(unit, c / 8) >> shift & 15u) << 4;
      }
      return static_cast<int>(code);
    }
  });
}

// Returns whether each level of a code of less than 8 bits is 1 above the level before.
bool is_equidistant(const ScalarCode& code);

PanelMatrix pack_scalar(const Tensor& tensor, int pass);
void unpack_scalar(const PanelMatrix& w, std::span<std::byte> codes);

}  // namespace walsh::detail
