#include <immintrin.h>

#include "codec/trellis/trellis_forward_impl.h"

namespace walsh::detail {
namespace {

struct Lanes16 {
  using Reg = __m512i;
  static constexpr int kLanes = 16;

  static Reg load(const int16_t* p) { return _mm512_loadu_si512(p); }
  static void store(int32_t* p, Reg a) { _mm512_storeu_si512(p, a); }
  static Reg set(int32_t v) { return _mm512_set1_epi32(v); }
  static Reg min(Reg a, Reg b) { return _mm512_min_epi32(a, b); }
  static Reg add_squares(Reg c, Reg a, Reg b) {
    const Reg d = _mm512_sub_epi16(a, b);
    return _mm512_dpwssd_epi32(c, d, d);
  }
};

}  // namespace

void trellis_forward_avx512(const TrellisTable& table, const int16_t* const* x, int tiles,
                            int steps, int32_t* const* best) {
  // The costs of four tiles for this many vectors stay in registers.
  constexpr int kMost = 4;
  if (table.classes() >= kMost * Lanes16::kLanes)
    return forward_tiles<Lanes16, kMost>(table, x, tiles, steps, best);
  forward_tiles<Lanes16, 1>(table, x, tiles, steps, best);
}

}  // namespace walsh::detail
