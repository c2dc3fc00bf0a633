// Provides AVX2 operations on eight rows for codec/product/simd/product_decoder.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/product/simd/product_decoder.h"

namespace walsh::avx2 {

struct ProductWords {
  using Ints = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kBias = 0;

  WALSH_INLINE static Ints load(const uint32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  WALSH_INLINE static Ints set8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  // Where the gather instruction is microcode, sixteen loads are several times as fast.
  template <int Byte>
  WALSH_INLINE static Ints gather(const uint8_t* table, const uint8_t* pointers) {
    return _mm256_setr_m128i(four_entries(table, pointers + Byte),
                             four_entries(table, pointers + 16 + Byte));
  }
  WALSH_INLINE static __m128i four_entries(const uint8_t* table, const uint8_t* pointers) {
    const auto entry = [&](int row) WALSH_INLINE {
      int v;
      std::memcpy(&v, table + 4 * pointers[4 * row], 4);
      return v;
    };
    __m128i entries = _mm_cvtsi32_si128(entry(0));
    entries = _mm_insert_epi32(entries, entry(1), 1);
    entries = _mm_insert_epi32(entries, entry(2), 2);
    return _mm_insert_epi32(entries, entry(3), 3);
  }
  template <int Bits>
  WALSH_INLINE static Ints rotate_left(Ints a) {
    return _mm256_or_si256(_mm256_slli_epi32(a, Bits), _mm256_srli_epi32(a, 32 - Bits));
  }
  template <uint32_t Mask>
  WALSH_INLINE static Ints select(Ints a, Ints b) {
    return _mm256_blendv_epi8(b, a, _mm256_set1_epi32(static_cast<int>(Mask)));
  }
  template <int Bit>
  WALSH_INLINE static Ints subtract_where(Ints levels, Ints signs, Ints amount) {
    const Ints bit = _mm256_set1_epi8(static_cast<char>(Bit));
    const Ints where = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bit), bit);
    return _mm256_sub_epi8(levels, _mm256_and_si256(where, amount));
  }
};

}  // namespace walsh::avx2
