#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

template <>
GemvKernel gemv_kernel<ScalarDecoder<3>>(const GemvKind& kind) {
  return kind.flush == 32 ? select_kernel<ScalarDecoder<3>, 32>(kind)
                          : select_kernel<ScalarDecoder<3>, 128>(kind);
}

}  // namespace walsh::cuda
