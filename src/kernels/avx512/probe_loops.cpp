#include "kernels/probe_loops.h"

#include <immintrin.h>

#include "base/unroll.h"

namespace walsh::avx512 {

uint64_t read_lines(const uint64_t* lines, int64_t count) {
  __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
  for (int64_t i = 0; i + 4 <= count; i += 4) {
    detail::unroll<4>([&](auto k) WALSH_INLINE {
      sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(lines + (i + k) * 8));
    });
  }
  for (int64_t i = count / 4 * 4; i < count; ++i)
    sum[0] = _mm512_xor_si512(sum[0], _mm512_load_si512(lines + i * 8));
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  alignas(64) uint64_t parts[8];
  _mm512_store_si512(parts, all);
  return parts[0] ^ parts[1] ^ parts[2] ^ parts[3] ^ parts[4] ^ parts[5] ^ parts[6] ^ parts[7];
}

int64_t multiply_add(int64_t rounds, int32_t* sink) {
  constexpr int kChains = 12;
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(static_cast<char>(rounds));
  __m512i sum[kChains];
  detail::unroll<kChains>([&](auto i) WALSH_INLINE { sum[i] = _mm512_set1_epi32(i); });
  for (int64_t r = 0; r < rounds; ++r) {
    detail::unroll<kChains>([&](auto i)
                                WALSH_INLINE { sum[i] = _mm512_dpbusd_epi32(sum[i], x, y); });
  }
  alignas(64) int32_t lanes[16];
  for (const __m512i& s : sum) {
    _mm512_store_si512(lanes, s);
    for (int32_t v : lanes)
      *sink ^= v;
  }
  return rounds * kChains * 64;
}

}  // namespace walsh::avx512
