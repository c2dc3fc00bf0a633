// Unpacking of one unit (32 columns of 16 rows) into unsigned bytes level + 128, the unsigned
// operand of vpdpbusd. `Lookup` is a table of 16 bytes indexed by the low 4 bits of every byte; it
// is what differs between plain AVX-512 and VBMI, and it makes the instances of each distinct.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/unroll.h"

namespace walsh::avx512 {

// Table for a field of a nibble: entry i = levels[code(i)] + 128.
template <typename CodeOf>
inline __m128i nibble_table(const int8_t* levels, CodeOf code_of) {
  alignas(16) uint8_t table[16];
  for (int i = 0; i < 16; ++i)
    table[i] = static_cast<uint8_t>(levels[code_of(i)] + 128);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(table));
}

template <int Index>
using Quad = std::integral_constant<int, Index>;

// decode(words, emit) calls emit(quad, weights) for quads 0..7 of a unit in any order: a 32-bit
// lane of `weights` holds columns 4 * quad .. 4 * quad + 3 of one row.
template <int Bits, class Lookup>
class CodeDecoder;

template <class Lookup>
class CodeDecoder<4, Lookup> {
 public:
  explicit CodeDecoder(const int8_t* levels)
      : table_(nibble_table(levels, [](int i) { return i; })) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    detail::unroll<4>([&](auto j) WALSH_INLINE {
      const __m512i word = _mm512_load_si512(words + 16 * j);
      emit(Quad<2 * j>{}, table_(word));
      emit(Quad<2 * j + 1>{}, table_(_mm512_srli_epi16(word, 4)));
    });
  }

 private:
  Lookup table_;
};

template <class Lookup>
class CodeDecoder<3, Lookup> {
 public:
  // The fourth word is gathered with bit 0 of a code in bit 3 of its nibble, bit 1 in bit 2 and
  // bit 2 in bit 1: that order needs one operation less per word than the natural one.
  explicit CodeDecoder(const int8_t* levels)
      : table_(nibble_table(levels, [](int i) { return i & 7; })),
        gathered_(nibble_table(
            levels, [](int i) { return (i >> 3 & 1) | (i >> 1 & 2) | (i << 1 & 4); })) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    constexpr int kSelect = 0xca;  // a ? b : c, bit by bit
    const __m512i w0 = _mm512_load_si512(words);
    const __m512i w1 = _mm512_load_si512(words + 16);
    const __m512i w2 = _mm512_load_si512(words + 32);
    emit(Quad<0>{}, table_(w0));
    emit(Quad<1>{}, table_(_mm512_srli_epi16(w0, 4)));
    emit(Quad<2>{}, table_(w1));
    emit(Quad<3>{}, table_(_mm512_srli_epi16(w1, 4)));
    emit(Quad<4>{}, table_(w2));
    emit(Quad<5>{}, table_(_mm512_srli_epi16(w2, 4)));
    __m512i w3 = _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(0x88)), w0,
                                           _mm512_srli_epi16(w1, 1), kSelect);
    w3 = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x22), _mm512_srli_epi16(w2, 2), w3, kSelect);
    emit(Quad<6>{}, gathered_(w3));
    emit(Quad<7>{}, gathered_(_mm512_srli_epi16(w3, 4)));
  }

 private:
  Lookup table_, gathered_;
};

template <class Lookup>
class CodeDecoder<2, Lookup> {
 public:
  explicit CodeDecoder(const int8_t* levels)
      : low_(nibble_table(levels, [](int i) { return i & 3; })),
        high_(nibble_table(levels, [](int i) { return i >> 2; })) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    detail::unroll<2>([&](auto j) WALSH_INLINE {
      const __m512i even = _mm512_load_si512(words + 16 * j);
      const __m512i odd = _mm512_srli_epi16(even, 4);
      emit(Quad<4 * j>{}, low_(even));
      emit(Quad<4 * j + 1>{}, low_(odd));
      emit(Quad<4 * j + 2>{}, high_(even));
      emit(Quad<4 * j + 3>{}, high_(odd));
    });
  }

 private:
  Lookup low_, high_;
};

template <class Lookup>
class CodeDecoder<8, Lookup> {
 public:
  explicit CodeDecoder(const int8_t*) {}

  template <typename Emit>
  WALSH_INLINE void decode(const uint32_t* words, const Emit& emit) const {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    detail::unroll<8>([&](auto quad) WALSH_INLINE {
      emit(quad, _mm512_xor_si512(_mm512_load_si512(words + 16 * quad), flip));
    });
  }
};

}  // namespace walsh::avx512
