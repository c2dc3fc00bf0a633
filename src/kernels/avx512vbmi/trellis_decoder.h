// Decodes one unit (two tiles, 32 columns) of a trellis panel with VBMI: one byte permute moves the
// eight windows of a quad into 64-bit lanes, multishifts extract the states into 16-bit lanes, two
// 16-bit multiplications hash 32 states, and two-register byte permutes look up levels and
// magnitudes of pairs.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/panel_layout.h"
#include "kernels/simd/code_decoder.h"
#include "kernels/unroll.h"

namespace walsh::avx512vbmi {

// 16-bit hashes of the states that start at bits `shifts` of every window.
class StateHash {
 public:
  explicit StateHash(const TrellisCode& code)
      : mask_(_mm512_set1_epi16(static_cast<short>((1u << code.state_bits) - 1))),
        multiplier_low_(_mm512_set1_epi16(static_cast<short>(code.multiplier))),
        multiplier_high_(_mm512_set1_epi16(static_cast<short>(code.multiplier >> 16))) {}

  WALSH_INLINE __m512i operator()(__m512i windows, __m512i shifts) const {
    const __m512i state = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, windows), mask_);
    return _mm512_add_epi16(_mm512_mullo_epi16(state, multiplier_high_),
                            _mm512_mulhi_epu16(state, multiplier_low_));
  }

  // Shift counts for four states per window: word i at bit bit_of(i).
  template <typename BitOf>
  static __m512i shifts(const BitOf& bit_of) {
    alignas(8) uint8_t shift[8];
    for (int word = 0; word < 4; ++word) {
      shift[2 * word] = static_cast<uint8_t>(bit_of(word));
      shift[2 * word + 1] = static_cast<uint8_t>(bit_of(word) + 8);
    }
    long long all;
    __builtin_memcpy(&all, shift, 8);
    return _mm512_set1_epi64(all);
  }

 private:
  __m512i mask_, multiplier_low_, multiplier_high_;
};

// The windows of a tile: 64 bits for every row and the row eight below it, for every quad or every
// two quads.
template <int TileBytes, int Windows = 4>
class TileWindows {
  static constexpr int kParts = (TileBytes + 63) / 64;

 public:
  // byte_of(j, i): the position in the cyclic tile of byte i of window j, Windows * g + q.
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

  // A tile in registers; bytes beyond it are loaded but not used.
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
  __mmask64 third_[Windows];  // bytes beyond the first 128
};

// One weight per step.
template <class Steps>
class LevelDecoder {
 public:
  static constexpr int kBias = 128;
  static constexpr int kUnitWords = Steps::kUnitWords;

  explicit LevelDecoder(const TrellisCode& code)
      : hash_(code), windows_([](int j, int i) { return kBits * (31 - j) + i; }) {
    alignas(64) uint8_t table[128];
    for (int i = 0; i < 128; ++i)
      table[i] = static_cast<uint8_t>(code.table[i] + 128);
    for (int i = 0; i < 2; ++i)
      levels_[i] = _mm512_load_si512(table + 64 * i);
    // Words 0, 1: columns `odd` and 2 + odd of row g; words 2, 3: the same of row g + 8.
    for (int odd = 0; odd < 2; ++odd) {
      shifts_[odd] = StateHash::shifts(
          [&](int word) { return kBits * (7 - (4 * (word / 2) + 2 * (word % 2) + odd)); });
    }
  }

  // emit(Quad<n>, weights) for quads 0..7 of the unit: level + 128 of all lanes of the panel.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int, const Emit& emit) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    detail::unroll<2>([&](auto tile) WALSH_INLINE {
      const auto loaded = windows_.load(bytes + 2 * kUnitWords * tile);
      detail::unroll<4>([&](auto quad) WALSH_INLINE {
        emit(detail::Quad<4 * tile + quad>{}, levels(indices(windows_.of(loaded, quad))));
      });
    });
  }

 private:
  static constexpr int kBits = Steps::kBits;

  WALSH_INLINE __m512i indices(__m512i window) const {
    const __m512i even = _mm512_srli_epi16(hash_(window, shifts_[0]), 8);
    const __m512i odd = hash_(window, shifts_[1]);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x00ff), even, odd, 0xca);
  }
  // Level + 128 from the lower half of the symmetric table, since level(255 - i) = -level(i).
  WALSH_INLINE __m512i levels(__m512i index) const {
    const __mmask64 upper = _mm512_movepi8_mask(index);
    const __m512i folded =
        _mm512_mask_sub_epi8(index, upper, _mm512_set1_epi8(static_cast<char>(0xff)), index);
    const __m512i level = _mm512_permutex2var_epi8(levels_[0], folded, levels_[1]);
    return _mm512_mask_sub_epi8(level, upper, _mm512_setzero_si512(), level);
  }

  StateHash hash_;
  TileWindows<2 * kUnitWords> windows_;
  __m512i shifts_[2], levels_[2];
};

// Two weights per step.
template <class Steps>
class PairDecoder {
 public:
  static constexpr int kBias = 128;
  static constexpr int kUnitWords = Steps::kUnitWords;

  explicit PairDecoder(const TrellisCode& code)
      : hash_(code), windows_([](int j, int i) { return start_bit(j) / 8 + i; }) {
    // Words 0, 1: columns 0, 1 and 2, 3 of row g; words 2, 3: the same of row g + 8. Windows of odd
    // and even quads start at different bits of a byte.
    for (int quad = 0; quad < 2; ++quad) {
      shifts_[quad] =
          StateHash::shifts([&](int word) { return start_bit(quad) % 8 + kBits * (3 - word); });
    }
    for (uint32_t part = 0; part < 4; ++part) {
      for (int v = 0; v < 2; ++v) {
        alignas(64) uint8_t table[64];
        for (uint32_t i = 0; i < 64; ++i) {
          // Bits 8..2 of a pair's index count within the half of the table that bit 0 selects.
          const uint32_t index = (part % 2 * 64 + i) << 2 | part / 2;
          table[i] = static_cast<uint8_t>(code.table[2 * index + static_cast<uint32_t>(v)] + 128);
        }
        tables_[v][part] = _mm512_load_si512(table);
      }
    }
  }

  // As in LevelDecoder.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int, const Emit& emit) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    detail::unroll<2>([&](auto tile) WALSH_INLINE {
      const auto loaded = windows_.load(bytes + 2 * kUnitWords * tile);
      detail::unroll<2>([&](auto half) WALSH_INLINE {
        const __m512i first = hash_(windows_.of(loaded, 2 * half), shifts_[0]);
        const __m512i second = hash_(windows_.of(loaded, 2 * half + 1), shifts_[1]);
        const Magnitudes m = magnitudes(first, second);
        const __m512i low = _mm512_set1_epi16(0x00ff);
        emit(detail::Quad<4 * tile + 2 * half>{},
             with_signs(first, _mm512_ternarylogic_epi32(low, m.value[0],
                                                         _mm512_slli_epi16(m.value[1], 8), 0xca)));
        emit(detail::Quad<4 * tile + 2 * half + 1>{},
             with_signs(second, _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(m.value[0], 8),
                                                          m.value[1], 0xca)));
      });
    });
  }

 private:
  static constexpr int kBits = Steps::kBits;

  // Magnitudes of both values of a pair: a low byte belongs to a state of the first quad, a high
  // byte to one of the second.
  struct Magnitudes {
    __m512i value[2];
  };

  static constexpr int start_bit(int j) { return 4 * kBits * (31 - j); }

  // The index of a pair is the upper 10 bits of a hash: bits 8..2 are the low bits of its high
  // byte, bit 0 is bit 6 of its low byte.
  WALSH_INLINE Magnitudes magnitudes(__m512i first, __m512i second) const {
    const __m512i low = _mm512_set1_epi16(0x00ff);
    const __m512i index = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(first, 8), second, 0xca);
    const __m512i halves =
        _mm512_ternarylogic_epi32(low, first, _mm512_slli_epi16(second, 8), 0xca);
    const __mmask64 upper = _mm512_test_epi8_mask(halves, _mm512_set1_epi8(0x40));
    Magnitudes m;
    for (int v = 0; v < 2; ++v) {
      const __m512i* t = tables_[v];
      m.value[v] = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(t[0], index, t[1]),
                                          _mm512_permutex2var_epi8(t[2], index, t[3]));
    }
    return m;
  }
  // The signs are the top bits of the hash's bytes.
  WALSH_INLINE static __m512i with_signs(__m512i hash, __m512i levels) {
    return _mm512_mask_sub_epi8(levels, _mm512_movepi8_mask(hash), _mm512_setzero_si512(), levels);
  }

  StateHash hash_;
  TileWindows<2 * kUnitWords> windows_;
  __m512i shifts_[2], tables_[2][4];
};

// Two weights per step from the bytes of one product (TrellisRule::bytes, quantiles).
template <class Steps>
class HashDecoder {
 public:
  static constexpr int kBias = 128;
  static constexpr int kUnitWords = Steps::kUnitWords;

  explicit HashDecoder(const TrellisCode& code)
      : narrow_(code.state_bits < kMostStateBits),
        mask_(_mm512_set1_epi16(static_cast<short>((1u << code.state_bits) - 1))),
        low_(_mm512_set1_epi16(static_cast<short>(code.multiplier << (kSums ? 1 : 0)))),
        high_(_mm512_set1_epi16(static_cast<short>(code.multiplier >> 16))),
        windows_(byte_of) {
    // Words 0, 1: columns 0, 1 and 2, 3 of row g; words 2, 3: the same of row g + 8.
    for (int i = 0; i < 2; ++i) {
      const int first = kPaired ? 4 * kBits * (1 - i) : start_bit(i) % 8;
      shifts_[i] = StateHash::shifts([&](int word) { return first + kBits * (3 - word); });
    }
    if constexpr (!kSums) {
      alignas(64) uint8_t table[128];
      for (int i = 0; i < 128; ++i)
        table[i] = static_cast<uint8_t>(code.table[i] + kBias);
      for (int i = 0; i < 2; ++i)
        table_[i] = _mm512_load_si512(table + 64 * i);
    }
  }

  // emit(Quad<n>, weights) for quads 0..7 of the unit: level + kBias of all lanes of the panel.
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
  // A window of two quads has 7 k + 16 bits, if they fit into a lane.
  static constexpr bool kPaired = kBits <= 6;
  // If states begin at whole bytes, the permute moves them without a shift.
  static constexpr bool kWholeBytes = kBits == 8;
  static constexpr int kWindows = kPaired ? 2 : 4, kSteps = kTileWeights / 2 / (8 * kWindows);

  // The lowest bit of the newest step of window j.
  static constexpr int start_bit(int j) { return kBits * kSteps * (8 * kWindows - 1 - j); }
  static constexpr int byte_of(int j, int i) {
    return start_bit(j) / 8 + (kWholeBytes ? 3 - i / 2 + i % 2 : i);
  }

  // Narrow: states of fewer than 16 bits, whose words have bits of older steps above them.
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

template <class Steps>
using TrellisDecoder = std::conditional_t<
    Steps::kRule != TrellisRule::table, HashDecoder<Steps>,
    std::conditional_t<Steps::kValues == 1, LevelDecoder<Steps>, PairDecoder<Steps>>>;

}  // namespace walsh::avx512vbmi
