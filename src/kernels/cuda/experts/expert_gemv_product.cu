#include "kernels/cuda/experts/expert_gemv.cuh"

namespace walsh::cuda {

template <>
ExpertGemvKernel expert_gemv_kernel<ProductDecoder>(const GemvKind& kind) {
  return select_expert_kernel<ProductDecoder>(kind);
}

}  // namespace walsh::cuda
