#include <immintrin.h>

#include "quantize/trellis/trellis_forward_impl.h"

namespace walsh::detail {
namespace {

struct Lanes16 {
  using Reg = __m512;
  static constexpr int kLanes = 16;

  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static Reg set(float v) { return _mm512_set1_ps(v); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  template <int kBits>
  static Reg spread(const float* p) {
    if constexpr (kBits >= 4) return _mm512_set1_ps(*p);
    if constexpr (kBits == 3) {
      const __m512d two = _mm512_set1_pd(*reinterpret_cast<const double*>(p));
      return _mm512_permutevar_ps(
          _mm512_castpd_ps(two), _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    }
    return _mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(p)),
                                _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
  }
};

}  // namespace

void trellis_forward_avx512(const TrellisTable& table, const float* x, int steps, float* best) {
  forward<Lanes16>(table, x, steps, best);
}

void trellis_forward_tiles_avx512(const TrellisTable& table, const float* const* x, int steps,
                                  float* const* best) {
  forward_tiles<Lanes16>(table, x, steps, best);
}

}  // namespace walsh::detail
