#include <immintrin.h>

#include "codec/feedback/multiply_add_impl.h"

namespace walsh::detail {
namespace {

struct Columns8 {
  using Reg = __m256;
  static constexpr int kLanes = 8, kTileRows = 6, kTileVectors = 2;

  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static Reg set(float v) { return _mm256_set1_ps(v); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
};

}  // namespace

void multiply_add_avx2(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m,
                       int64_t n, int64_t k) {
  ::multiply_add<Columns8>(a, b, ldb, c, ldc, m, n, k);
}

}  // namespace walsh::detail
