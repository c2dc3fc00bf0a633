// Holds the arguments with which DequantizedGemm and the kernels that rotate weights multiply
// 16-bit (or f32) rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/weights/matrix.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

// Says in which basis the input rows are: that of the model, or that of the stored weights (first
// pass).
enum class Basis : uint8_t { original, rotated };

// Points to input vectors, which are row-major on the device and zero from the logical width to the
// product's `cols`. `stride` is in elements; rows are 16-byte aligned.
//
// As a 16-bit type, f16 keeps three more bits than bf16, but holds only 65504. An input behind an
// RMSNorm is bounded by sqrt(width) * max |gain| (a rotation keeps the norm), so that f16 cannot
// overflow there; inputs of o and down have no bound and are bf16.
struct Rows {
  const void* data = nullptr;  // It has the shape [m][stride] and this type.
  int64_t stride = 0;
  DType type = DType::bf16;
  Basis basis = Basis::original;
};

// Describes y[t * ldy + row] (+)= bias[row] + W x_t, where W is the sum of coded passes, or
// uncoded.
struct RowMatmul {
  const Matrix* pass[2] = {};          // The second one is a residual format's, or null.
  Rotation rotation[2];                // It is that of the passes: hadamard or none.
  const DenseMatrix* dense = nullptr;  // It is set instead of the passes.
  // It is padded_cols of the format; for a dense matrix, the number of its columns.
  int64_t cols = 0;
  const float* bias = nullptr;  // It is [rows] or null.
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;  // If true, the product is added to y.

  int64_t rows() const { return dense ? dense->rows : pass[0]->rows; }
};

}  // namespace walsh::cuda
