// Provides operations on sixteen float32 lanes (AVX-512) for the kernels in kernels/simd.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace walsh::avx512 {

struct Lanes {
  using Reg = __m512;
  using Double = __m512d;
  using Ints = __m512i;
  static constexpr int kWidth = 16;
  // The accumulators of a product tile, kTileRows rows times kTileVectors vectors, are in
  // registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 4;
  static constexpr int kDenseRows = 4;  // Products along the lanes have such a tile, too.
  static constexpr int kDenseTokens = 6;

  static __mmask16 mask(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg set(float v) { return _mm512_set1_ps(v); }
  // Addresses may be unaligned. The versions with n use only the first n lanes: other lanes load as
  // 0 and are not stored, and their memory is not accessed.
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static void store(float* p, Reg a, int64_t n) { _mm512_mask_storeu_ps(p, mask(n), a); }

  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  // If a lane of a or b is NaN, min and max give that of b.
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  // Rounds to the nearest whole number, ties to even. to_ints and store_f16 round in the same way.
  static Reg round(Reg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
  // Returns a < limit ? 0 : b.
  static Reg zero_below(Reg a, Reg limit, Reg b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(a, limit, _CMP_LT_OQ), zero());
  }
  // Replaces lanes outside [begin, end) by those of `otherwise`.
  static Reg keep(Reg a, int64_t begin, int64_t end, Reg otherwise) {
    return _mm512_mask_mov_ps(otherwise, static_cast<__mmask16>(mask(end) & ~mask(begin)), a);
  }
  // Returns a * 2^n for whole n in [-126, 127].
  static Reg scale_by_power(Reg a, Reg n) { return _mm512_scalef_ps(a, n); }

  // These reduce a vector to one number, in a fixed order.
  static float first(Reg a) { return _mm512_cvtss_f32(a); }
  // Returns the sums of four vectors. Each is computed by the same tree of additions as sum(a).
  static __m128 sums(Reg a, Reg b, Reg c, Reg d) {
    const __m256 ab = _mm256_hadd_ps(fold(a), fold(b)), cd = _mm256_hadd_ps(fold(c), fold(d));
    const __m256 all = _mm256_hadd_ps(ab, cd);
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
  }
  static float sum(Reg a) { return _mm_cvtss_f32(sums(a, a, a, a)); }
  static float largest(Reg a) { return _mm512_reduce_max_ps(a); }

  // These return the two halves as doubles.
  static Double low(Reg a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
  static Double high(Reg a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
  static Double zero_double() { return _mm512_setzero_pd(); }
  static Double fma(Double a, Double b, Double c) { return _mm512_fmadd_pd(a, b, c); }
  static double sum(Double a) { return _mm512_reduce_add_pd(a); }

  // These convert 16-bit floats at addresses of any alignment. Both conversions are exact.
  static Reg load_f16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static Reg load_f16(const void* p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(n), p));
  }
  static Reg load_bf16(const void* p) {
    return from_bf16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static Reg load_bf16(const void* p, int64_t n) {
    return from_bf16(_mm256_maskz_loadu_epi16(mask(n), p));
  }
  static void store_f16(uint16_t* p, Reg a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_f16(uint16_t* p, Reg a, int64_t n) {
    _mm256_mask_storeu_epi16(p, mask(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }

  // Compares magnitudes as bit patterns, in which NaN is above infinity, and infinity above all
  // numbers.
  static Ints max_magnitude(Ints acc, Reg a) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epi32(acc, bits);
  }
  static Ints zero_ints() { return _mm512_setzero_si512(); }
  static int32_t largest(Ints a) { return _mm512_reduce_max_epi32(a); }
  static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static int32_t sum(Ints a) { return _mm512_reduce_add_epi32(a); }
  // to_ints converts to integers, one per lane. store_i8 stores their low bytes; values must fit in
  // int8.
  static Ints to_ints(Reg a) { return _mm512_cvtps_epi32(a); }
  static void store_i8(int8_t* p, Ints a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }
  static Reg load_i8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }

  // Prefetches into the second-level cache. Any address is allowed.
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

  // Makes row i, lane j become row j, lane i.
  static void transpose(Reg (&a)[16]);

 private:
  static __m256 fold(Reg a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  }
  static Reg from_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
};

inline void Lanes::transpose(Reg (&a)[16]) {
  Reg b[16];
  // The first step transposes blocks of 4 x 4 lanes within each 128-bit part, for rows 4i..4i+3.
  for (int i = 0; i < 16; i += 4) {
    const __m512d p = _mm512_castps_pd(_mm512_unpacklo_ps(a[i], a[i + 1]));
    const __m512d q = _mm512_castps_pd(_mm512_unpackhi_ps(a[i], a[i + 1]));
    const __m512d r = _mm512_castps_pd(_mm512_unpacklo_ps(a[i + 2], a[i + 3]));
    const __m512d s = _mm512_castps_pd(_mm512_unpackhi_ps(a[i + 2], a[i + 3]));
    b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, r));
    b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, r));
    b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(q, s));
    b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(q, s));
  }
  // The second step moves the 128-bit parts, so that part k of b[4i + j] becomes part i of column
  // 4k + j.
  for (int j = 0; j < 4; ++j) {
    const Reg even_low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
    const Reg odd_low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
    const Reg even_high = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    const Reg odd_high = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
    a[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    a[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    a[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    a[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

}  // namespace walsh::avx512
