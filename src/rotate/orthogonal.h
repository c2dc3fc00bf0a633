// Haar-random orthogonal matrices: the rotation that the Hadamard transform stands in for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace walsh::detail {

struct OrthogonalMatrix {
  int size = 0;
  std::vector<float> forward;  // column-major: column j at forward + j * size
  std::vector<float> inverse;  // the transpose, column-major
};

// Q of the QR decomposition of a Gaussian matrix, signs fixed by the diagonal of R (Mezzadri 2007);
// a pure function of seed and size. The most recent ones are kept.
std::shared_ptr<const OrthogonalMatrix> orthogonal_matrix(uint32_t seed, int size);

// x[size] <- M x, M column-major; scratch[size].
void multiply_in_place(const std::vector<float>& matrix, int size, float* x, float* scratch);

}  // namespace walsh::detail
