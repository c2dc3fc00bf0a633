// Trellis codes with half-integer bits per weight.
#include "kernels/cuda/experts/expert_gemv.cuh"

namespace walsh::cuda {

template <>
ExpertGemvKernel expert_gemv_kernel<TrellisDecoder<5>>(const GemvKind& kind) {
  return select_expert_kernel<TrellisDecoder<5>>(kind);
}
template <>
ExpertGemvKernel expert_gemv_kernel<TrellisDecoder<7>>(const GemvKind& kind) {
  return select_expert_kernel<TrellisDecoder<7>>(kind);
}

}  // namespace walsh::cuda
