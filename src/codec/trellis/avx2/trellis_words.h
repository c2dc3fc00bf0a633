// Provides AVX2 operations on eight rows for codec/trellis/simd/trellis_decoder.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/trellis/simd/trellis_decoder.h"

namespace walsh::avx2 {

struct TrellisWords {
  using Ints = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kBias = 0;

  WALSH_INLINE static Ints words(uint64_t first, const uint8_t* p, int64_t stride) {
    const auto at = [&](int i) WALSH_INLINE {
      long long v;
      std::memcpy(&v, p + stride * i, 8);
      return v;
    };
    return _mm256_setr_epi64x(static_cast<long long>(first), at(1), at(2), at(3));
  }
  WALSH_INLINE static Ints set16(uint32_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  template <int N>
  WALSH_INLINE static Ints shift_right64(Ints a) {
    return _mm256_srli_epi64(a, N);
  }
  template <int N>
  WALSH_INLINE static Ints shift_left64(Ints a) {
    return _mm256_slli_epi64(a, N);
  }
  template <int N>
  WALSH_INLINE static Ints shift_right32(Ints a) {
    return _mm256_srli_epi32(a, N);
  }
  template <int N>
  WALSH_INLINE static Ints shift_left32(Ints a) {
    return _mm256_slli_epi32(a, N);
  }
  WALSH_INLINE static Ints odd_lanes(Ints a, Ints b) { return _mm256_blend_epi32(a, b, 0xaa); }
  WALSH_INLINE static Ints odd_words(Ints a, Ints b) { return _mm256_blend_epi16(a, b, 0xaa); }
  WALSH_INLINE static Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  WALSH_INLINE static Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  WALSH_INLINE static Ints mean8(Ints a, Ints b) { return _mm256_avg_epu8(a, b); }
  WALSH_INLINE static Ints add8(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
  WALSH_INLINE static Ints add16(Ints a, Ints b) { return _mm256_add_epi16(a, b); }
  WALSH_INLINE static Ints multiply_low(Ints a, Ints b) { return _mm256_mullo_epi16(a, b); }
  WALSH_INLINE static Ints multiply_high(Ints a, Ints b) { return _mm256_mulhi_epu16(a, b); }
  WALSH_INLINE static Ints shuffle(Ints table, Ints index) {
    return _mm256_shuffle_epi8(table, index);
  }
  WALSH_INLINE static Ints select(Ints a, Ints b, Ints x) { return _mm256_blendv_epi8(a, b, x); }

  class Levels {
   public:
    explicit Levels(const int8_t* table) {
      for (int i = 0; i < 8; ++i) {
        parts_[i] = _mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 128 + 16 * i)));
      }
    }
    // Looks up the table's upper half by |index - 127.5|, and negates levels of indices below
    // 127.5.
    WALSH_INLINE Ints operator()(Ints index) const {
      const Ints side = _mm256_xor_si256(index, _mm256_set1_epi8(static_cast<char>(0x80)));
      const Ints below = _mm256_cmpgt_epi8(_mm256_setzero_si256(), side);
      const Ints magnitude =
          detail::lookup_tree<TrellisWords>(parts_, _mm256_xor_si256(side, below));
      return _mm256_sign_epi8(magnitude, _mm256_or_si256(side, _mm256_set1_epi8(1)));
    }

   private:
    Ints parts_[8];
  };
};

}  // namespace walsh::avx2
