// Provides AVX-512 operations (without VBMI) on sixteen rows for
// codec/trellis/simd/trellis_decoder.h. Levels are biased for the unsigned operand of vpdpbusd.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/trellis/simd/trellis_decoder.h"

namespace walsh::avx512 {

struct TrellisWords {
  using Ints = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kBias = 128;

  WALSH_INLINE static Ints words(uint64_t first, const uint8_t* p, int64_t stride) {
    const auto at = [&](int i) WALSH_INLINE {
      long long v;
      std::memcpy(&v, p + stride * i, 8);
      return v;
    };
    return _mm512_setr_epi64(static_cast<long long>(first), at(1), at(2), at(3), at(4), at(5),
                             at(6), at(7));
  }
  WALSH_INLINE static Ints set16(uint32_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }
  template <int N>
  WALSH_INLINE static Ints shift_right64(Ints a) {
    return _mm512_srli_epi64(a, N);
  }
  template <int N>
  WALSH_INLINE static Ints shift_left64(Ints a) {
    return _mm512_slli_epi64(a, N);
  }
  template <int N>
  WALSH_INLINE static Ints shift_right32(Ints a) {
    return _mm512_srli_epi32(a, N);
  }
  template <int N>
  WALSH_INLINE static Ints shift_left32(Ints a) {
    return _mm512_slli_epi32(a, N);
  }
  WALSH_INLINE static Ints odd_lanes(Ints a, Ints b) {
    return _mm512_mask_blend_epi32(0xaaaa, a, b);
  }
  WALSH_INLINE static Ints odd_words(Ints a, Ints b) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, b);
  }
  WALSH_INLINE static Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  WALSH_INLINE static Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  WALSH_INLINE static Ints mean8(Ints a, Ints b) { return _mm512_avg_epu8(a, b); }
  WALSH_INLINE static Ints add8(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
  WALSH_INLINE static Ints add16(Ints a, Ints b) { return _mm512_add_epi16(a, b); }
  WALSH_INLINE static Ints multiply_low(Ints a, Ints b) { return _mm512_mullo_epi16(a, b); }
  WALSH_INLINE static Ints multiply_high(Ints a, Ints b) { return _mm512_mulhi_epu16(a, b); }
  WALSH_INLINE static Ints shuffle(Ints table, Ints index) {
    return _mm512_shuffle_epi8(table, index);
  }
  WALSH_INLINE static Ints select(Ints a, Ints b, Ints x) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), a, b);
  }

  class Levels {
   public:
    explicit Levels(const int8_t* table) {
      for (int i = 0; i < 8; ++i) {
        parts_[i] = _mm512_broadcast_i32x4(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 128 + 16 * i)));
      }
    }
    // Looks up the table's upper half by |index - 127.5|, negates levels of indices below 127.5,
    // and adds 128.
    WALSH_INLINE Ints operator()(Ints index) const {
      const __mmask64 below = ~_mm512_movepi8_mask(index);
      const Ints top = _mm512_set1_epi8(static_cast<char>(0x80));
      const Ints half = _mm512_mask_blend_epi8(below, _mm512_xor_si512(index, top),
                                               _mm512_xor_si512(index, _mm512_set1_epi8(0x7f)));
      const Ints magnitude = detail::lookup_tree<TrellisWords>(parts_, half);
      return _mm512_mask_sub_epi8(_mm512_add_epi8(magnitude, top), below, top, magnitude);
    }

   private:
    Ints parts_[8];
  };
};

template <class Steps>
using TrellisDecoder = detail::TrellisDecoder<Steps, TrellisWords>;

}  // namespace walsh::avx512
