#include "kernels/probe_loops.h"

#include <immintrin.h>

#include "base/unroll.h"

namespace walsh::avx2 {

uint64_t read_lines(const uint64_t* lines, int64_t count) {
  __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int64_t i = 0; i < count; ++i) {
    const auto* line = reinterpret_cast<const __m256i*>(lines + i * 8);
    sum[0] = _mm256_xor_si256(sum[0], _mm256_load_si256(line));
    sum[1] = _mm256_xor_si256(sum[1], _mm256_load_si256(line + 1));
  }
  alignas(32) uint64_t parts[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), _mm256_xor_si256(sum[0], sum[1]));
  return parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
}

int64_t multiply_add(int64_t rounds, int32_t* sink) {
  constexpr int kChains = 8;
  const __m256i x = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  __m256i sum[kChains];
  detail::unroll<kChains>([&](auto i) WALSH_INLINE { sum[i] = _mm256_set1_epi32(i); });
  for (int64_t r = 0; r < rounds; ++r) {
    // The sum is also a factor, so that nothing can be moved out of the loop.
    detail::unroll<kChains>([&](auto i) WALSH_INLINE {
      const __m256i pairs = _mm256_maddubs_epi16(x, sum[(i + 1) % kChains]);
      sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, ones));
    });
  }
  alignas(32) int32_t lanes[8];
  for (const __m256i& s : sum) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), s);
    for (int32_t v : lanes)
      *sink ^= v;
  }
  return rounds * kChains * 32;
}

}  // namespace walsh::avx2
