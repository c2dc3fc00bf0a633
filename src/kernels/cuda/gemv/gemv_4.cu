#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

template <>
MatvecKernel matvec_kernel<ScalarDecoder<4>>(const MatvecKind& kind) {
  return kind.flush == 32 ? select_kernel<ScalarDecoder<4>, 32>(kind)
                          : select_kernel<ScalarDecoder<4>, 128>(kind);
}

}  // namespace walsh::cuda
