// Multiplies float32 matrices for calibration: second moments, Cholesky factors, error feedback.
// There is one implementation per instruction set. All give the same bits, because every element is
// one chain of FMAs in the order of k.
#pragma once

#include <cstdint>

namespace walsh::detail {

// Names a matrix whose element (i, t) is data[i * row + t * col].
struct LeftFactor {
  const float* data;
  int64_t row, col;
};

// Computes c[i * ldc + j] += sum over t < k of a(i, t) b[t * ldb + j] for i < m, j < n. c overlaps
// neither a nor b. Nothing needs to be aligned.
using MultiplyAdd = void (*)(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc,
                             int64_t m, int64_t n, int64_t k);

void multiply_add_ref(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m,
                      int64_t n, int64_t k);
void multiply_add_avx2(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t m,
                       int64_t n, int64_t k);
void multiply_add_avx512(LeftFactor a, const float* b, int64_t ldb, float* c, int64_t ldc,
                         int64_t m, int64_t n, int64_t k);

// Returns the implementation for current_isa().
MultiplyAdd multiply_add();

}  // namespace walsh::detail
