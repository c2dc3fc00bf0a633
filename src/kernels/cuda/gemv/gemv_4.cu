#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

template <>
GemvKernel gemv_kernel<ScalarDecoder<4>>(const GemvKind& kind) {
  return kind.flush == 32 ? select_kernel<ScalarDecoder<4>, 32>(kind)
                          : select_kernel<ScalarDecoder<4>, 128>(kind);
}

}  // namespace walsh::cuda
