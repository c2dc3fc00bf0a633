#include <immintrin.h>

#include "quantize/trellis/trellis_forward_impl.h"

namespace walsh::detail {
namespace {

struct Lanes8 {
  using Reg = __m256;
  static constexpr int kLanes = 8;

  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static Reg set(float v) { return _mm256_set1_ps(v); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  template <int kBits>
  static Reg spread(const float* p) {
    if constexpr (kBits >= 3) return _mm256_broadcast_ss(p);
    const __m256d two = _mm256_broadcast_sd(reinterpret_cast<const double*>(p));
    return _mm256_permutevar_ps(_mm256_castpd_ps(two), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  }
};

}  // namespace

void trellis_forward_avx2(const TrellisTable& table, const float* x, int steps, float* best) {
  forward<Lanes8>(table, x, steps, best);
}

void trellis_forward_tiles_avx2(const TrellisTable& table, const float* const* x, int steps,
                                float* const* best) {
  forward_tiles<Lanes8>(table, x, steps, best);
}

}  // namespace walsh::detail
