// The host side of weights/weight_tile.cuh.
#pragma once

#include "kernels/cuda/gemm/row_matmul.h"
#include "kernels/cuda/weights/weight_tile.cuh"

namespace walsh::cuda::detail {

// Pass `pass` of a product as kernels see it; rotated back by its rotation unless `keep_rotated`.
// Throws internal when the product is not one that kernels can read.
PassView pass_view(const RowMatmul& product, int pass, bool keep_rotated);

}  // namespace walsh::cuda::detail
