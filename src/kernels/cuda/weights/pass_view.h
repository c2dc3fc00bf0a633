// Makes the arguments of kernels that include weights/weight_tile.cuh.
#pragma once

#include "kernels/cuda/gemm/row_matmul.h"
#include "kernels/cuda/weights/weight_tile.cuh"

namespace walsh::cuda::detail {

// Describes pass `pass` of a product for kernels, with its rotation unless `keep_rotated`. Throws
// internal for a product that the kernels do not support.
PassView pass_view(const RowMatmul& product, int pass, bool keep_rotated);

}  // namespace walsh::cuda::detail
