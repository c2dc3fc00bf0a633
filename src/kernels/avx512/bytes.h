// Provides AVX-512 operations on sixteen rows of bytes for codec/scalar/simd/code_decoder.h. Levels
// have a bias of 128 for the unsigned operand of vpdpbusd, or none. `LookupTable` differs between
// plain AVX-512 and VBMI.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/unroll.h"

namespace walsh::avx512 {

template <class LookupTable, int Bias = 128>
struct Bytes {
  using Ints = __m512i;
  using Table = LookupTable;
  static constexpr int kBias = Bias;

  WALSH_INLINE static Ints load(const uint32_t* p) { return _mm512_load_si512(p); }
  template <int Bits>
  WALSH_INLINE static Ints shift_right(Ints a) {
    return _mm512_srli_epi16(a, Bits);
  }
  template <int Bits>
  WALSH_INLINE static Ints shift_left(Ints a) {
    return _mm512_slli_epi16(a, Bits);
  }
  WALSH_INLINE static Ints masked(int mask, Ints a) {
    return _mm512_and_si512(_mm512_set1_epi8(static_cast<char>(mask)), a);
  }
  WALSH_INLINE static Ints add(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
  WALSH_INLINE static Ints select(int mask, Ints a, Ints b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), a, b, 0xca);
  }
  WALSH_INLINE static Ints plain(Ints bytes) {
    if constexpr (Bias == 0) return bytes;
    return _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
};

}  // namespace walsh::avx512
