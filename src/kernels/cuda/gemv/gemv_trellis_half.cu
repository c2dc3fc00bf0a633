// Trellis codes with half-integer bits per weight.
#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

template <>
GemvKernel gemv_kernel<TrellisDecoder<5>>(const GemvKind& kind) {
  return kind.flush == 32 ? select_kernel<TrellisDecoder<5>, 32>(kind)
                          : select_kernel<TrellisDecoder<5>, 128>(kind);
}
template <>
GemvKernel gemv_kernel<TrellisDecoder<7>>(const GemvKind& kind) {
  return kind.flush == 32 ? select_kernel<TrellisDecoder<7>, 32>(kind)
                          : select_kernel<TrellisDecoder<7>, 128>(kind);
}

}  // namespace walsh::cuda
