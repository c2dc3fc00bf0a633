// Steps of models whose matrices have different codes.
#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

StepKernel step_kernel_of_several(bool wide) {
  using Narrow = SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>>;
  using Wide =
      SeveralCodes<32, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, ScalarDecoder<8>>;
  static_assert(Narrow::kMemory == step_memory_of_several(false));
  static_assert(Wide::kMemory == step_memory_of_several(true));
  return wide ? step_kernel_of<Wide> : step_kernel_of<Narrow>;
}

}  // namespace walsh::cuda
