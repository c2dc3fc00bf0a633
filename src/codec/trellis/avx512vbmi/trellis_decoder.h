// Decodes one unit (two tiles, 32 columns) of a trellis panel with VBMI. One byte permute moves the
// eight windows of a quad into 64-bit lanes, and multishifts extract the states into 16-bit lanes.
// Two 16-bit multiplications make the products of 32 states, whose bytes are levels or are looked
// up by a two-register byte permute.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/unroll.h"
#include "codec/trellis/panels.h"

namespace walsh::avx512vbmi {

// Returns the shift counts for four states per window; word i begins at bit bit_of(i).
template <typename BitOf>
__m512i state_shifts(const BitOf& bit_of) {
  alignas(8) uint8_t shift[8];
  for (int word = 0; word < 4; ++word) {
    shift[2 * word] = static_cast<uint8_t>(bit_of(word));
    shift[2 * word + 1] = static_cast<uint8_t>(bit_of(word) + 8);
  }
  long long all;
  __builtin_memcpy(&all, shift, 8);
  return _mm512_set1_epi64(all);
}

// Extracts the windows of a tile, which are 64 bits for every row and the row eight below it, for
// every quad or every two quads.
template <int TileBytes, int Windows = 4>
class TileWindows {
  static constexpr int kParts = (TileBytes + 63) / 64;

 public:
  // byte_of(j, i) returns the position in the cyclic tile of byte i of window j, where j is Windows
  // * g + q.
  template <typename ByteOf>
  explicit TileWindows(const ByteOf& byte_of) {
    for (int quad = 0; quad < Windows; ++quad) {
      alignas(64) uint8_t from[64];
      for (int g = 0; g < 8; ++g) {
        for (int i = 0; i < 8; ++i)
          from[8 * g + i] = static_cast<uint8_t>(byte_of(Windows * g + quad, i) % TileBytes);
      }
      bytes_[quad] = _mm512_load_si512(from);
      third_[quad] = _mm512_movepi8_mask(bytes_[quad]);
    }
  }

  // Holds a tile in registers. Bytes beyond it are loaded but not used.
  struct Tile {
    __m512i part[kParts];
  };
  WALSH_INLINE static Tile load(const uint8_t* bytes) {
    Tile tile;
    detail::unroll<kParts>([&](auto i)
                               WALSH_INLINE { tile.part[i] = _mm512_loadu_si512(bytes + 64 * i); });
    return tile;
  }
  WALSH_INLINE __m512i of(const Tile& tile, int quad) const {
    const __m512i from = bytes_[quad];
    if constexpr (kParts == 1) {
      return _mm512_permutexvar_epi8(from, tile.part[0]);
    } else {
      const __m512i near = _mm512_permutex2var_epi8(tile.part[0], from, tile.part[1]);
      if constexpr (kParts == 2) return near;
      return _mm512_mask_permutexvar_epi8(near, third_[quad], from, tile.part[kParts - 1]);
    }
  }

 private:
  __m512i bytes_[Windows];
  __mmask64 third_[Windows];  // It marks bytes beyond the first 128.
};

template <class Steps>
class TrellisDecoder {
 public:
  static constexpr int kBias = 128;
  static constexpr int kUnitWords = Steps::kUnitWords;

  explicit TrellisDecoder(const TrellisCode& code)
      : narrow_(code.state_bits < kMostStateBits),
        mask_(_mm512_set1_epi16(static_cast<short>((1u << code.state_bits) - 1))),
        low_(_mm512_set1_epi16(static_cast<short>(code.multiplier << (kSums ? 1 : 0)))),
        high_(_mm512_set1_epi16(static_cast<short>(code.multiplier >> 16))),
        windows_(byte_of) {
    // Words 0 and 1 are columns 0, 1 and 2, 3 of row g; words 2 and 3 are the same of row g + 8.
    for (int i = 0; i < 2; ++i) {
      const int first = kPaired ? 4 * kBits * (1 - i) : start_bit(i) % 8;
      shifts_[i] = state_shifts([&](int word) { return first + kBits * (3 - word); });
    }
    if constexpr (!kSums) {
      alignas(64) uint8_t table[128];
      for (int i = 0; i < 128; ++i)
        table[i] = static_cast<uint8_t>(code.table[i] + kBias);
      for (int i = 0; i < 2; ++i)
        table_[i] = _mm512_load_si512(table + 64 * i);
    }
  }

  // Calls emit(Quad<n>, weights) for quads 0..7 of the unit, with level + kBias of the panel's
  // lanes.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int, const Emit& emit) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    if (narrow_) {
      decode_unit<true>(bytes, emit);
    } else {
      decode_unit<false>(bytes, emit);
    }
  }

 private:
  static constexpr int kBits = Steps::kBits;
  static constexpr bool kSums = Steps::kRule == TrellisRule::bytes;
  // If true, a window holds two quads. It has 7 k + 16 bits then, which have to fit into a lane.
  static constexpr bool kPaired = kBits <= 6;
  // If true, states begin at whole bytes, and the permute moves them without a shift.
  static constexpr bool kWholeBytes = kBits == 8;
  static constexpr int kWindows = kPaired ? 2 : 4, kSteps = kTileWeights / 2 / (8 * kWindows);

  // Returns the lowest bit of the newest step of window j.
  static constexpr int start_bit(int j) { return kBits * kSteps * (8 * kWindows - 1 - j); }
  static constexpr int byte_of(int j, int i) {
    return start_bit(j) / 8 + (kWholeBytes ? 3 - i / 2 + i % 2 : i);
  }

  // Decodes a unit. Narrow states have fewer than 16 bits, and their words have bits of older steps
  // above them.
  template <bool Narrow, typename Emit>
  WALSH_INLINE void decode_unit(const uint8_t* bytes, const Emit& emit) const {
    detail::unroll<2>([&](auto tile) WALSH_INLINE {
      const auto loaded = windows_.load(bytes + 2 * kUnitWords * tile);
      detail::unroll<kWindows>([&](auto i) WALSH_INLINE {
        const __m512i window = windows_.of(loaded, i);
        if constexpr (kPaired) {
          emit(detail::Quad<4 * tile + 2 * i>{}, levels<Narrow>(window, shifts_[0]));
          emit(detail::Quad<4 * tile + 2 * i + 1>{}, levels<Narrow>(window, shifts_[1]));
        } else {
          emit(detail::Quad<4 * tile + i>{}, levels<Narrow>(window, shifts_[i % 2]));
        }
      });
    });
  }

  template <bool Narrow>
  WALSH_INLINE __m512i levels(__m512i window, __m512i shifts) const {
    __m512i state = kWholeBytes ? window : _mm512_multishift_epi64_epi8(shifts, window);
    if constexpr (Narrow) state = _mm512_and_si512(state, mask_);
    const __m512i upper = _mm512_mulhi_epu16(state, low_);
    if constexpr (kSums) {
      // Doubling the product doubles the lower seven bits of every byte and adds a bit of the byte
      // below. The mean of 2 a + 1 and of 2 b or 2 b + 1, rounded up, is a + b + 1 = level + 128.
      const __m512i low = _mm512_mullo_epi16(state, low_);
      return _mm512_avg_epu8(_mm512_or_si512(low, _mm512_set1_epi8(1)),
                             _mm512_add_epi16(upper, low));
    } else {
      const __m512i high = _mm512_add_epi16(upper, _mm512_mullo_epi16(state, high_));
      return _mm512_permutex2var_epi8(table_[0], high, table_[1]);
    }
  }

  bool narrow_;
  __m512i mask_, low_, high_;
  TileWindows<2 * kUnitWords, kWindows> windows_;
  __m512i shifts_[2], table_[2];
};

}  // namespace walsh::avx512vbmi
