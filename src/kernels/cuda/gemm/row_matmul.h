// DequantizedGemm and the kernels that rotate weights multiply 16-bit (or f32) rows with these
// arguments.
#pragma once

#include <cstdint>

#include "kernels/cuda/weights/matrix.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

// The input rows are in the basis of the model, or in that of the stored weights (first pass).
enum class Basis : uint8_t { original, rotated };

// Input vectors are row-major on the device, zero from the logical width to the product's `cols`.
// `stride` is in elements; rows are 16-byte aligned.
//
// As a 16-bit type, f16 keeps three more bits than bf16, but holds only 65504. An input behind an
// RMSNorm is bounded by sqrt(width) * max |gain| (a rotation keeps the norm), so that f16 cannot
// overflow there; inputs of o and down have no bound and are bf16.
struct Rows {
  const void* data = nullptr;  // [m][stride] of `type`
  int64_t stride = 0;
  DType type = DType::bf16;
  Basis basis = Basis::original;
};

// Computes y[t * ldy + row] (+)= bias[row] + W x_t, where W is the sum of coded passes or uncoded.
struct RowMatmul {
  const Matrix* pass[2] = {};          // the second one: of a residual format, or null
  Rotation rotation[2];                // of the passes: hadamard or none
  const DenseMatrix* dense = nullptr;  // set instead of the passes
  int64_t cols = 0;                    // padded_cols of the format; for a dense matrix, its columns
  const float* bias = nullptr;         // [rows] or null
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;  // add to the contents of y

  int64_t rows() const { return dense ? dense->rows : pass[0]->rows; }
};

}  // namespace walsh::cuda
