#include "kernels/cuda/experts/expert_gemv.cuh"

namespace walsh::cuda {

template <>
ExpertGemvKernel expert_gemv_kernel<ScalarDecoder<8>>(const GemvKind& kind) {
  return select_expert_kernel<ScalarDecoder<8>>(kind);
}

}  // namespace walsh::cuda
