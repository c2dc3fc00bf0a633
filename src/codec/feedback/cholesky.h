// Computes the Cholesky factor of a symmetric matrix in blocks, with all threads.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace walsh::detail {

// Finds an upper triangular C with a[n][n] = C C^T, and writes it to the upper triangle of a. What
// is below the diagonal is neither read nor written. The bits do not depend on the number of
// threads or on the instruction set. Returns false if the matrix is not positive definite; the
// upper triangle is lost then.
bool factor_upper(float* a, int64_t n, ThreadPool& pool);

// Factors a symmetric matrix, of which both triangles are given, with `damping` times `unit` added
// to its diagonal, or 4, 16, ... times as much until that is positive definite. Returns the damping
// that was needed, or a negative number if even `most` was not enough. What is below the diagonal
// is lost.
double factor_damped(float* a, int64_t n, double unit, double damping, double most,
                     ThreadPool& pool);

// Copies the upper triangle of a[n][n] below the diagonal.
void mirror(float* a, int64_t n, ThreadPool& pool);

// Transposes a[n][n] in place.
void transpose(float* a, int64_t n, ThreadPool& pool);

}  // namespace walsh::detail
