// The kernels of dequantize.h are launched with this: one file compiles those for values of 16
// bits, another one those for float32.
#pragma once

#include "kernels/cuda/gemm/row_matmul.h"
#include "kernels/cuda/weights/pass_view.h"

namespace walsh::cuda::detail {

struct DequantizeTarget {
  void* data = nullptr;  // starts with row row_begin
  int row_begin = 0, row_end = 0;
  int cols = 0;       // columns, and the stride
  bool bf16 = false;  // not f16, of values of 16 bits
};

void dequantize_halves(const RowMatmul& product, const PassView& first, const PassView& second,
                       const DequantizeTarget& target, Stream stream);
void dequantize_floats(const RowMatmul& product, const PassView& first, const PassView& second,
                       const DequantizeTarget& target, Stream stream);

}  // namespace walsh::cuda::detail
