// Decodes one unit (two tiles, 32 columns) of a trellis panel without byte permutes across lanes.
// Windows of the bit stream are loaded one by one, states are extracted into 16-bit lanes and
// multiplied in 16 bits. The bytes of the product are levels or are looked up by a tree of byte
// shuffles.
//
// `Arch` is the instruction set: type Ints of kLanes 32-bit lanes, words(p, stride) (64 bits at
// each of p, p + stride, ...), set16, set64, shift_right64<n>, shift_left64<n>, shift_right32<n>,
// shift_left32<n>, odd_words(a, b) and odd_lanes(a, b) (odd 16- or 32-bit parts from b), bit_and,
// bit_or, add8, add16, mean8 (rounded up), multiply_low, multiply_high, and Levels, the lookup of a
// byte in a symmetric table of 256 levels. kBias is added to all levels.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/unroll.h"
#include "codec/trellis/panels.h"

namespace walsh::detail {

// Returns the windows of a quad of columns: 64 bits from byte Start of the tile for row g, and for
// every eighth row from there, each Stride bytes before the last. Windows wrap around the end of
// the tile to its start.
template <int TileBytes, int Start, int Stride, class Arch>
WALSH_INLINE inline typename Arch::Ints trellis_windows(const uint8_t* tile, int g) {
  uint64_t first;
  std::memcpy(&first, tile + Start - Stride * g, 8);
  if constexpr (Start + 8 > TileBytes) {
    if (g == 0) {
      constexpr int kInside = 8 * (TileBytes - Start);
      uint64_t start;
      std::memcpy(&start, tile, 8);
      first = (first & ((uint64_t{1} << kInside) - 1)) | start << kInside;
    }
  }
  return Arch::words(first, tile + Start - Stride * g, -Stride);
}

template <class Steps, class Arch>
class TrellisDecoder {
 public:
  static constexpr int kUnitWords = Steps::kUnitWords, kBias = Arch::kBias;
  using Ints = typename Arch::Ints;

  explicit TrellisDecoder(const TrellisCode& code)
      : mask_(Arch::set16((1u << code.state_bits) - 1)),
        low_(Arch::set16((code.multiplier << (kSums ? 1 : 0)) & 0xffffu)),
        high_(Arch::set16(code.multiplier >> 16)),
        levels_(code) {}

  // Calls emit(Quad<n>, weights) for quads 0..7 of the unit, for the lanes of the panel from `lane`
  // on.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int lane, const Emit& emit) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    unroll<2 * kWindows>([&](auto i) WALSH_INLINE {
      // Window j = kWindows g + w starts with the last step of its last quad.
      constexpr int kTile = i / kWindows, kWindow = i % kWindows;
      constexpr int kStart = 4 * kBits * kQuads * (8 * kWindows - 1 - kWindow);
      const Ints window = trellis_windows<kTileBytes, kStart / 8, 2 * kBits, Arch>(
          bytes + kTile * kTileBytes, lane / 2);
      unroll<kQuads>([&](auto quad) WALSH_INLINE {
        constexpr int kOffset = kStart % 8 + 4 * kBits * (kQuads - 1 - quad);
        emit(Quad<kQuads * i + quad>{}, levels<kOffset>(window));
      });
    });
  }

 private:
  static constexpr int kBits = Steps::kBits;
  static constexpr int kTileBytes = 2 * kUnitWords;
  static constexpr bool kSums = Steps::kRule == TrellisRule::bytes;
  // A window of 7 k + 16 bits holds two quads, if this many bits fit into 64.
  static constexpr int kQuads = kBits <= 6 ? 2 : 1, kWindows = 4 / kQuads;

  // Makes levels that are sums of the lower seven bits of two bytes. Doubling the product doubles
  // these bits and adds a bit of the byte below. The mean of 2 a + 1 and of 2 b or 2 b + 1, rounded
  // up, is a + b + 1 = level + 128.
  struct Sums {
    Ints one, shift;
    explicit Sums(const TrellisCode&)
        : one(Arch::set16(0x0101)), shift(Arch::set16(0x0101u * ((Arch::kBias - 128) & 0xff))) {}
    WALSH_INLINE Ints operator()(Ints low, Ints high) const {
      const Ints sums = Arch::mean8(Arch::bit_or(low, one), high);
      if constexpr (Arch::kBias == 128) return sums;
      return Arch::add8(sums, shift);
    }
  };
  // Holds the 128 levels, each twice, in the table in which Arch::Levels looks bytes up.
  struct Quantiles {
    typename Arch::Levels levels;
    explicit Quantiles(const TrellisCode& code) : levels(twice(code.table).data()) {}
    static std::array<int8_t, 256> twice(const int8_t* table) {
      std::array<int8_t, 256> out;
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = table[i / 2];
      return out;
    }
    WALSH_INLINE Ints operator()(Ints, Ints high) const { return levels(Arch::add8(high, high)); }
  };

  // Decodes the quad whose last step begins at bit Offset of every window.
  template <int Offset>
  WALSH_INLINE Ints levels(Ints window) const {
    const Ints rows = Arch::odd_lanes(Arch::template shift_right64<Offset + 2 * kBits>(window),
                                      Arch::template shift_left64<32 - Offset>(window));
    const Ints state = Arch::bit_and(Arch::odd_words(Arch::template shift_right32<kBits>(rows),
                                                     Arch::template shift_left32<16>(rows)),
                                     mask_);
    const Ints upper = Arch::multiply_high(state, low_);
    if constexpr (kSums) {
      const Ints low = Arch::multiply_low(state, low_);
      return levels_(low, Arch::add16(upper, low));
    } else {
      return levels_(upper, Arch::add16(upper, Arch::multiply_low(state, high_)));
    }
  }

  Ints mask_, low_, high_;
  std::conditional_t<kSums, Sums, Quantiles> levels_;
};

// Looks up the upper half of a symmetric table of 256 levels by 7 bits. Bits 0-3 are looked up by a
// shuffle, bits 4-6 select among eight parts. `shuffle(part, index)` and `select(a, b, x)` (b where
// the top bit of a byte of x is set) belong to the instruction set.
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
