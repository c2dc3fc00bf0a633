// Multiplies coded or plain matrices with 1 to 16 vectors (GEMV), which is bound by reading the
// weights.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/rows/prepare.h"
#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda {

inline constexpr int64_t kMaxVectors = 16;
inline constexpr int kMaxMatmuls = 3;  // A launch has at most this many products of one input.

// Describes y[t * ldy + row] (+)= bias[row] + sum over passes of W_p x_p.
struct Matmul {
  const Matrix* pass[2] = {};  // The second one is a residual format's, or null.
  const Activations* input[2] = {};
  const float* bias = nullptr;  // Its shape is [rows]; null: nothing is added.
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;  // If true, adds to y, for example to the residual stream.
};

// Computes products of the same m <= 16 vectors, in one launch where codes, shapes and inputs allow
// it (one more per residual pass). With i = the integer sum over the columns of one scale group of
// both operands,
//   y = fma(i, (scale * unit) * x_scale, y), then, once per group of inputs with offsets,
//   y = fma(offset, sum(q) * x_scale, y)
// over runs of columns whose sums are added in order, and so are planes. Integer sums are exact;
// runs depend on the device and the shapes of the launch, not on m.
void gemv(std::span<const Matmul> products, int64_t m, Stream stream);

// Describes GEMV for a plain matrix with m <= 16 float rows x[m][ldx].
struct DenseMatmul {
  const DenseMatrix* weights = nullptr;
  const float* x = nullptr;
  int64_t ldx = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;
};
void gemv(std::span<const DenseMatmul> products, int64_t m, Stream stream);

}  // namespace walsh::cuda
