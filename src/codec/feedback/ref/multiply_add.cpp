#include "codec/feedback/multiply_add.h"

#include <cmath>

namespace walsh::detail {

void multiply_add_ref(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m,
                      int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t t = 0; t < k; ++t) {
      const float factor = a.data[i * a.row + t * a.col];
      for (int64_t j = 0; j < n; ++j)
        c[i * ldc + j] = std::fma(factor, b[t * ldb + j], c[i * ldc + j]);
    }
  }
}

}  // namespace walsh::detail
