// Decoding of one unit (two tiles, 32 columns) of a trellis panel without byte permutes across
// lanes: windows of the bit stream are loaded one by one, states cut out in 16-bit lanes, hashed by
// two 16-bit multiplications and looked up in a tree of byte shuffles.
//
// `Arch` is the instruction set: type Ints of kLanes 32-bit lanes, words(p, stride) (64 bits at
// each of p, p + stride, ...), set16, set64, shift_right64<n>, shift_left64<n>, shift_right32<n>,
// shift_left32<n>, shift_right16<n>, odd_words(a, b) and odd_lanes(a, b) (odd 16- or 32-bit parts
// from b), low_bytes(a, b) (bits of a where 16-bit parts have 0x00ff, else of b), bit_and, add16,
// multiply_low, multiply_high, and Levels, the lookup of a byte in a symmetric table of 256 levels.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/panel_layout.h"
#include "kernels/simd/code_decoder.h"
#include "kernels/unroll.h"

namespace walsh::detail {

template <int Bits, class Arch>
class WindowTrellisDecoder {
 public:
  static constexpr int kBits = Bits;
  using Ints = typename Arch::Ints;

  explicit WindowTrellisDecoder(const TrellisCode& code)
      : levels_(code.table),
        mask_(Arch::set16((1u << code.state_bits) - 1)),
        multiplier_low_(Arch::set16(code.multiplier & 0xffffu)),
        multiplier_high_(Arch::set16(code.multiplier >> 16)) {}

  // emit(Quad<n>, weights) for quads 0..7 of the unit; lanes `lane` .. of the panel.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    unroll<8>([&](auto quad) WALSH_INLINE {
      constexpr int kTile = quad / 4, kColumns = quad % 4;
      emit(quad, levels_(indices(windows<kColumns>(bytes + kTile * kTileBytes, lane / 2))));
    });
  }

 private:
  static constexpr int kTileBytes = 32 * Bits;

  // Window j = 4g + q starts at byte Bits (31 - j); those at the end of the tile go on at its
  // start.
  template <int Quad>
  WALSH_INLINE static Ints windows(const uint8_t* tile, int g) {
    constexpr int kStart = Bits * (31 - Quad);
    uint64_t first;
    std::memcpy(&first, tile + kStart - 4 * Bits * g, 8);
    if constexpr (kStart + 8 > kTileBytes) {
      if (g == 0) {
        constexpr int kInside = 8 * (kTileBytes - kStart);
        uint64_t start;
        std::memcpy(&start, tile, 8);
        first = (first & ((uint64_t{1} << kInside) - 1)) | start << kInside;
      }
    }
    return Arch::words(first, tile + kStart - 4 * Bits * g, -4 * Bits);
  }

  // The table index of every weight: byte i of lane 2g + h is that of column i of row g + 8h.
  WALSH_INLINE Ints indices(Ints window) const {
    // States of a row at bits Bits (3 - i) of its 32-bit lane.
    const Ints rows = Arch::odd_lanes(Arch::template shift_right64<4 * Bits>(window),
                                      Arch::template shift_left64<32>(window));
    const Ints even = hash(Arch::template shift_right32<3 * Bits>(rows),
                           Arch::template shift_left32<16 - Bits>(rows));
    const Ints odd =
        hash(Arch::template shift_right32<2 * Bits>(rows), Arch::template shift_left32<16>(rows));
    return Arch::low_bytes(Arch::template shift_right16<8>(even), odd);
  }

  // state * multiplier >> 16 of the state in the low word of `low` and in the high word of `high`.
  WALSH_INLINE Ints hash(Ints low, Ints high) const {
    const Ints state = Arch::bit_and(Arch::odd_words(low, high), mask_);
    return Arch::add16(Arch::multiply_low(state, multiplier_high_),
                       Arch::multiply_high(state, multiplier_low_));
  }

  typename Arch::Levels levels_;
  Ints mask_, multiplier_low_, multiplier_high_;
};

// The upper half of a symmetric table of 256 levels, looked up by 7 bits: kBits 0-3 inside a
// shuffle, 4-6 by selection between its eight parts. `shuffle(part, index)` and `select(a, b, x)`
// (b where the top bit of a byte of x is set) are the instruction set's.
template <class Arch>
WALSH_INLINE inline typename Arch::Ints lookup_tree(const typename Arch::Ints (&parts)[8],
                                                    typename Arch::Ints index) {
  using Ints = typename Arch::Ints;
  const Ints bit6 = Arch::add8(index, index);
  const Ints bit5 = Arch::add8(bit6, bit6);
  const Ints bit4 = Arch::add8(bit5, bit5);
  Ints level[8];
  unroll<8>([&](auto i) WALSH_INLINE { level[i] = Arch::shuffle(parts[i], index); });
  unroll<4>([&](auto i)
                WALSH_INLINE { level[i] = Arch::select(level[2 * i], level[2 * i + 1], bit4); });
  unroll<2>([&](auto i)
                WALSH_INLINE { level[i] = Arch::select(level[2 * i], level[2 * i + 1], bit5); });
  return Arch::select(level[0], level[1], bit6);
}

}  // namespace walsh::detail
