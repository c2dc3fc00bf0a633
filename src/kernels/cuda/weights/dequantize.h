// Dequantizes coded weights to floats.
#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/row_matmul.h"

namespace walsh::cuda {

// Writes rows [row_begin, row_end) of a coded product's weights as f32, f16 or bf16, rounded to
// nearest: out[(row - row_begin) * cols + column]. Levels are rounded to f16 first. row_begin must
// be a multiple of 16. The rotated basis is only available for single passes.
void dequantize(const RowMatmul& product, Basis basis, DType type, int64_t row_begin,
                int64_t row_end, void* out, Stream stream);

}  // namespace walsh::cuda
