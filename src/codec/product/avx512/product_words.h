// Provides AVX-512 operations (without VBMI) on sixteen rows for
// codec/product/simd/product_decoder.h. Levels are biased for the unsigned operand of vpdpbusd.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "codec/product/avx2/product_words.h"
#include "codec/product/simd/product_decoder.h"

namespace walsh::avx512 {

struct ProductWords {
  using Ints = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kBias = 128;

  WALSH_INLINE static Ints load(const uint32_t* p) { return _mm512_load_si512(p); }
  WALSH_INLINE static Ints set8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  template <int Byte>
  WALSH_INLINE static Ints gather(const uint8_t* table, const uint8_t* pointers) {
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(avx2::ProductWords::gather<Byte>(table, pointers)),
        avx2::ProductWords::gather<Byte>(table, pointers + 32), 1);
  }
  template <int Bits>
  WALSH_INLINE static Ints rotate_left(Ints a) {
    return _mm512_rol_epi32(a, Bits);
  }
  template <uint32_t Mask>
  WALSH_INLINE static Ints select(Ints a, Ints b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(Mask)), a, b, 0xca);
  }
  template <int Bit>
  WALSH_INLINE static Ints subtract_where(Ints levels, Ints signs, Ints amount) {
    const __mmask64 where = _mm512_test_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(Bit)));
    return _mm512_mask_sub_epi8(levels, where, levels, amount);
  }
};

using ProductDecoder = detail::GatherProductDecoder<ProductWords>;

}  // namespace walsh::avx512
