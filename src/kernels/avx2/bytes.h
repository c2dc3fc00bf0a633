// Provides AVX2 operations on eight rows of bytes for codec/scalar/simd/code_decoder.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/unroll.h"

namespace walsh::avx2 {

class ShuffleTable {
 public:
  explicit ShuffleTable(const uint8_t* table)
      : table_(
            _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)))) {}

  WALSH_INLINE __m256i operator()(__m256i index) const {
    return _mm256_shuffle_epi8(table_, _mm256_and_si256(index, _mm256_set1_epi8(0x0f)));
  }

 private:
  __m256i table_;
};

struct Bytes {
  using Ints = __m256i;
  using Table = ShuffleTable;
  static constexpr int kBias = 0;

  WALSH_INLINE static Ints load(const uint32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  template <int Bits>
  WALSH_INLINE static Ints shift_right(Ints a) {
    return _mm256_srli_epi16(a, Bits);
  }
  template <int Bits>
  WALSH_INLINE static Ints shift_left(Ints a) {
    return _mm256_slli_epi16(a, Bits);
  }
  WALSH_INLINE static Ints masked(int mask, Ints a) {
    return _mm256_and_si256(_mm256_set1_epi8(static_cast<char>(mask)), a);
  }
  WALSH_INLINE static Ints add(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
  WALSH_INLINE static Ints select(int mask, Ints a, Ints b) {
    const Ints m = _mm256_set1_epi8(static_cast<char>(mask));
    return _mm256_or_si256(_mm256_and_si256(m, a), _mm256_andnot_si256(m, b));
  }
  WALSH_INLINE static Ints plain(Ints bytes) { return bytes; }
};

}  // namespace walsh::avx2
