// Declares launches of the kernels of dequantize.h. One file compiles those for values of 16 bits,
// and another one those for float32.
#pragma once

#include "kernels/cuda/gemm/row_matmul.h"
#include "kernels/cuda/weights/pass_view.h"

namespace walsh::cuda::detail {

struct DequantizeTarget {
  void* data = nullptr;  // It starts with row row_begin.
  int row_begin = 0, row_end = 0;
  int cols = 0;       // It is the number of columns, and the stride.
  bool bf16 = false;  // If true, values of 16 bits are not f16.
};

void dequantize_halves(const RowMatmul& product, const PassView& first, const PassView& second,
                       const DequantizeTarget& target, Stream stream);
void dequantize_floats(const RowMatmul& product, const PassView& first, const PassView& second,
                       const DequantizeTarget& target, Stream stream);

}  // namespace walsh::cuda::detail
