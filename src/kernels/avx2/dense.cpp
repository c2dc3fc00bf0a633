// The AVX2 instance of the product with plain weights in kernels/simd.
#include "kernels/simd/dense.h"

#include <cstdint>

#include "kernels/avx2/lanes.h"
#include "kernels/isa_tables.h"

namespace walsh::avx2 {

void matmul_dense(DType type, const void* w, int64_t cols, const float* x, int64_t ldx, int64_t m,
                  float* y, int64_t ldy, int64_t row_begin, int64_t row_end) {
  simd::matmul_dense<Lanes>(type, w, cols, x, ldx, m, y, ldy, row_begin, row_end);
}

}  // namespace walsh::avx2
