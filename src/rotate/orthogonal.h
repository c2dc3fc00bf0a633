// Makes Haar-random orthogonal matrices. The Hadamard transform is the cheap stand-in for them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace walsh::detail {

struct OrthogonalMatrix {
  int size = 0;
  // It is column-major: column j begins at forward + j * size.
  std::vector<float> forward;
  std::vector<float> inverse;  // It is the transpose, column-major.
};

// Returns Q of the QR decomposition of a Gaussian matrix, with signs fixed by the diagonal of R
// (Mezzadri 2007); it depends on seed and size only. The most recent matrices are kept.
std::shared_ptr<const OrthogonalMatrix> orthogonal_matrix(uint32_t seed, int size);

// Computes x[size] <- M x, where M is column-major. scratch[size] is overwritten.
void multiply_in_place(const std::vector<float>& matrix, int size, float* x, float* scratch);

}  // namespace walsh::detail
