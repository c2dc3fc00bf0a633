// Rotates weights instead of inputs (`--rotate weights`). Loading a tile of weights includes the
// inverse Walsh-Hadamard transform, so inputs stay in the original basis, and nothing rotated is
// stored.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/gemm/row_matmul.h"

namespace walsh::cuda {

// For up to this many vectors the GEMV kernel is used.
inline constexpr int64_t kWeightSideVectors = 8;

// Returns whether all passes are coded with rotation blocks of at most 256 columns.
bool can_rotate_weights(std::span<const RowMatmul> products);

// Computes y[t * ldy + row] (+)= bias[row] + W x_t, with x in the original basis. For m <= 8, x is
// float rows, and weights and sums are float32, with the codebook's levels rounded to f16 (relative
// error below 2^-11). For larger m, x is bf16, and weights are rounded to bf16 after the transform.
void multiply_weight_side(std::span<const RowMatmul> products, const Rows& x, int64_t m,
                          Stream stream);

}  // namespace walsh::cuda
