// Provides operations on eight float32 lanes (AVX2, FMA, F16C) for the kernels in kernels/simd.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace walsh::avx2 {

struct Lanes {
  using Reg = __m256;
  using Double = __m256d;
  using Ints = __m256i;
  static constexpr int kWidth = 8;
  // The accumulators of a product tile, kTileRows rows times kTileVectors vectors, are in
  // registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;
  static constexpr int kDenseRows = 3;  // Products along the lanes have such a tile, too.
  static constexpr int kDenseTokens = 4;

  // Returns a mask with all ones in lanes [0, n), n from 0 to 8.
  static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg set(float v) { return _mm256_set1_ps(v); }
  // Addresses may be unaligned. The versions with n use only the first n lanes: other lanes load as
  // 0 and are not stored, and their memory is not accessed.
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load(const float* p, int64_t n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static void store(float* p, Reg a, int64_t n) { _mm256_maskstore_ps(p, mask(n), a); }

  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  // If a lane of a or b is NaN, min and max give that of b.
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  // Rounds to the nearest whole number, ties to even. to_ints and store_f16 round in the same way.
  static Reg round(Reg a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // Returns a < limit ? 0 : b.
  static Reg zero_below(Reg a, Reg limit, Reg b) {
    return _mm256_andnot_ps(_mm256_cmp_ps(a, limit, _CMP_LT_OQ), b);
  }
  // Replaces lanes outside [begin, end) by those of `otherwise`.
  static Reg keep(Reg a, int64_t begin, int64_t end, Reg otherwise) {
    const __m256i inside = _mm256_andnot_si256(mask(begin), mask(end));
    return _mm256_blendv_ps(otherwise, a, _mm256_castsi256_ps(inside));
  }
  // Returns a * 2^n for whole n in [-126, 127].
  static Reg scale_by_power(Reg a, Reg n) {
    const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
  }

  // These reduce a vector to one number, in a fixed order.
  static float first(Reg a) { return _mm256_cvtss_f32(a); }
  // Returns the sums of four vectors. Each is computed by the same tree of additions as sum(a).
  static __m128 sums(Reg a, Reg b, Reg c, Reg d) {
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
  }
  static float sum(Reg a) { return _mm_cvtss_f32(sums(a, a, a, a)); }
  static float largest(Reg a) {
    const __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
  }

  // These return the two halves as doubles.
  static Double low(Reg a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
  static Double high(Reg a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
  static Double zero_double() { return _mm256_setzero_pd(); }
  static Double fma(Double a, Double b, Double c) { return _mm256_fmadd_pd(a, b, c); }
  static double sum(Double a) {
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
  }

  // These convert 16-bit floats at addresses of any alignment. Both conversions are exact.
  static Reg load_f16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Reg load_f16(const void* p, int64_t n) { return _mm256_cvtph_ps(load_words(p, n)); }
  static Reg load_bf16(const void* p) {
    return from_bf16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Reg load_bf16(const void* p, int64_t n) { return from_bf16(load_words(p, n)); }
  static void store_f16(uint16_t* p, Reg a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_f16(uint16_t* p, Reg a, int64_t n) {
    uint16_t words[8];
    store_f16(words, a);
    std::memcpy(p, words, static_cast<size_t>(n) * 2);
  }

  // Compares magnitudes as bit patterns, in which NaN is above infinity, and infinity above all
  // numbers.
  static Ints max_magnitude(Ints acc, Reg a) {
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
    return _mm256_max_epi32(acc, bits);
  }
  static Ints zero_ints() { return _mm256_setzero_si256(); }
  static int32_t largest(Ints a) {
    const __m128i s = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i t = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
  }
  static Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static int32_t sum(Ints a) {
    const __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i t = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
  }
  // to_ints converts to integers, one per lane. store_i8 stores their low bytes; values must fit in
  // int8.
  static Ints to_ints(Reg a) { return _mm256_cvtps_epi32(a); }
  static void store_i8(int8_t* p, Ints a) {
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static Reg load_i8(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  // Prefetches into the second-level cache. Any address is allowed.
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

  // Makes row i, lane j become row j, lane i.
  static void transpose(Reg (&a)[8]);

 private:
  static __m128i load_words(const void* p, int64_t n) {
    uint16_t words[8] = {};
    std::memcpy(words, p, static_cast<size_t>(n) * 2);
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words));
  }
  static Reg from_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
};

inline void Lanes::transpose(Reg (&a)[8]) {
  Reg b[8];
  // The first step transposes blocks of 4 x 4 lanes within each 128-bit part, for rows 4i..4i+3.
  for (int i = 0; i < 8; i += 4) {
    const __m256d p = _mm256_castps_pd(_mm256_unpacklo_ps(a[i], a[i + 1]));
    const __m256d q = _mm256_castps_pd(_mm256_unpackhi_ps(a[i], a[i + 1]));
    const __m256d r = _mm256_castps_pd(_mm256_unpacklo_ps(a[i + 2], a[i + 3]));
    const __m256d s = _mm256_castps_pd(_mm256_unpackhi_ps(a[i + 2], a[i + 3]));
    b[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(p, r));
    b[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(p, r));
    b[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(q, s));
    b[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(q, s));
  }
  for (int j = 0; j < 4; ++j) {
    a[j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
    a[4 + j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
  }
}

}  // namespace walsh::avx2
