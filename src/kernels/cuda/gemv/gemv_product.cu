#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

template <>
GemvKernel gemv_kernel<ProductDecoder>(const GemvKind& kind) {
  return kind.flush == 32 ? select_kernel<ProductDecoder, 32>(kind)
                          : select_kernel<ProductDecoder, 128>(kind);
}

}  // namespace walsh::cuda
