#include <immintrin.h>

#include "codec/trellis/trellis_forward_impl.h"

namespace walsh::detail {
namespace {

struct Lanes8 {
  using Reg = __m256i;
  static constexpr int kLanes = 8;

  static Reg load(const int16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store(int32_t* p, Reg a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
  static Reg set(int32_t v) { return _mm256_set1_epi32(v); }
  static Reg min(Reg a, Reg b) { return _mm256_min_epi32(a, b); }
  static Reg add_squares(Reg c, Reg a, Reg b) {
    const Reg d = _mm256_sub_epi16(a, b);
    return _mm256_add_epi32(c, _mm256_madd_epi16(d, d));
  }
};

}  // namespace

void trellis_forward_avx2(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                          int32_t* const* best) {
  forward_tiles<Lanes8, 2>(table, x, tiles, steps, best);
}

}  // namespace walsh::detail
