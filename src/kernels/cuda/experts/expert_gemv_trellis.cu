#include "kernels/cuda/experts/expert_gemv.cuh"

namespace walsh::cuda {

template <>
ExpertGemvKernel expert_gemv_kernel<TrellisDecoder<4>>(const GemvKind& kind) {
  return select_expert_kernel<TrellisDecoder<4>>(kind);
}
template <>
ExpertGemvKernel expert_gemv_kernel<TrellisDecoder<6>>(const GemvKind& kind) {
  return select_expert_kernel<TrellisDecoder<6>>(kind);
}
template <>
ExpertGemvKernel expert_gemv_kernel<TrellisDecoder<8>>(const GemvKind& kind) {
  return select_expert_kernel<TrellisDecoder<8>>(kind);
}

}  // namespace walsh::cuda
