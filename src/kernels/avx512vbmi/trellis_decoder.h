// Decoding of one unit (two tiles, 32 columns) of a trellis panel with VBMI: one byte permute
// brings the eight windows of a quad into 64-bit lanes, multishifts cut the states out of them in
// 16-bit lanes, two 16-bit multiplications hash 32 states, and two-register byte permutes look
// levels up.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/panel_layout.h"
#include "kernels/simd/code_decoder.h"
#include "kernels/unroll.h"

namespace walsh::avx512vbmi {

template <int Bits>
class TrellisDecoder {
 public:
  static constexpr int kBits = Bits;

  explicit TrellisDecoder(const TrellisCode& code)
      : mask_(_mm512_set1_epi16(static_cast<short>((1u << code.state_bits) - 1))),
        multiplier_low_(_mm512_set1_epi16(static_cast<short>(code.multiplier))),
        multiplier_high_(_mm512_set1_epi16(static_cast<short>(code.multiplier >> 16))) {
    alignas(64) uint8_t table[128];
    for (int i = 0; i < 128; ++i)
      table[i] = static_cast<uint8_t>(code.table[i] + 128);
    for (int i = 0; i < 2; ++i)
      levels_[i] = _mm512_load_si512(table + 64 * i);
    for (int quad = 0; quad < 4; ++quad) {
      alignas(64) uint8_t from[64];
      for (int g = 0; g < 8; ++g) {
        for (int i = 0; i < 8; ++i)
          from[8 * g + i] = static_cast<uint8_t>((Bits * (31 - 4 * g - quad) + i) % kTileBytes);
      }
      windows_[quad] = _mm512_load_si512(from);
    }
    for (int odd = 0; odd < 2; ++odd) {
      // Words 0, 1: columns `odd` and 2 + odd of row g, words 2, 3: of row g + 8.
      alignas(8) uint8_t shift[8];
      for (int word = 0; word < 4; ++word) {
        const int position = 4 * (word / 2) + 2 * (word % 2) + odd;
        shift[2 * word] = static_cast<uint8_t>(Bits * (7 - position));
        shift[2 * word + 1] = static_cast<uint8_t>(Bits * (7 - position) + 8);
      }
      long long both;
      __builtin_memcpy(&both, shift, 8);
      shifts_[odd] = _mm512_set1_epi64(both);
    }
  }

  // emit(Quad<n>, weights) for quads 0..7 of the unit: level + 128 of all lanes of the panel.
  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, int, const Emit& emit) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(words);
    detail::unroll<2>([&](auto tile) WALSH_INLINE {
      const __m512i low = _mm512_loadu_si512(bytes + kTileBytes * tile);
      // What lies beyond the tile is read where it has less than 128 bytes, and not used.
      const __m512i high = _mm512_loadu_si512(bytes + kTileBytes * tile + 64);
      detail::unroll<4>([&](auto quad) WALSH_INLINE {
        const __m512i window = Bits == 2 ? _mm512_permutexvar_epi8(windows_[quad], low)
                                         : _mm512_permutex2var_epi8(low, windows_[quad], high);
        emit(detail::Quad<4 * tile + quad>{}, levels(indices(window)));
      });
    });
  }

 private:
  static constexpr int kTileBytes = 32 * Bits;

  WALSH_INLINE __m512i hash(__m512i window, __m512i shifts) const {
    const __m512i state = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, window), mask_);
    return _mm512_add_epi16(_mm512_mullo_epi16(state, multiplier_high_),
                            _mm512_mulhi_epu16(state, multiplier_low_));
  }
  WALSH_INLINE __m512i indices(__m512i window) const {
    const __m512i even = _mm512_srli_epi16(hash(window, shifts_[0]), 8);
    const __m512i odd = hash(window, shifts_[1]);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x00ff), even, odd, 0xca);
  }
  // Level + 128 from the lower half of the symmetric table: level(255 - i) = -level(i).
  WALSH_INLINE __m512i levels(__m512i index) const {
    const __mmask64 upper = _mm512_movepi8_mask(index);
    const __m512i folded =
        _mm512_mask_sub_epi8(index, upper, _mm512_set1_epi8(static_cast<char>(0xff)), index);
    const __m512i level = _mm512_permutex2var_epi8(levels_[0], folded, levels_[1]);
    return _mm512_mask_sub_epi8(level, upper, _mm512_setzero_si512(), level);
  }

  __m512i windows_[4], shifts_[2], levels_[2];
  __m512i mask_, multiplier_low_, multiplier_high_;
};

}  // namespace walsh::avx512vbmi
