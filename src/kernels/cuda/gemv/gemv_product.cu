#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

template <>
MatvecKernel matvec_kernel<ProductDecoder>(const MatvecKind& kind) {
  return kind.flush == 32 ? select_kernel<ProductDecoder, 32>(kind)
                          : select_kernel<ProductDecoder, 128>(kind);
}

}  // namespace walsh::cuda
