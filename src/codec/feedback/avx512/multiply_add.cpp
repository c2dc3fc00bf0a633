#include <immintrin.h>

#include "codec/feedback/multiply_add_impl.h"

namespace walsh::detail {
namespace {

struct Columns16 {
  using Reg = __m512;
  static constexpr int kLanes = 16, kTileRows = 6, kTileVectors = 4;

  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static Reg set(float v) { return _mm512_set1_ps(v); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
};

}  // namespace

void multiply_add_avx512(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc,
                         int64_t m, int64_t n, int64_t k) {
  ::multiply_add<Columns16>(a, b, ldb, c, ldc, m, n, k);
}

}  // namespace walsh::detail
