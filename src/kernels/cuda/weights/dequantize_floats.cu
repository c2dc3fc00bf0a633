// Dequantizes to float32, for products that are to be exact.
#include "kernels/cuda/weights/dequantize_kernel.cuh"

namespace walsh::cuda::detail {

void dequantize_floats(const RowMatmul& product, const PassView& first, const PassView& second,
                       const DequantizeTarget& target, Stream stream) {
  dequantize_to<float>(product, first, second, target, stream);
}

}  // namespace walsh::cuda::detail
