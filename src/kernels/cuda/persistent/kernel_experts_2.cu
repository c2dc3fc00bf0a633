#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_expert_kernel<ScalarDecoder<2>>(int flush) {
  return flush == 32 ? persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<2>, 32>>>
                     : persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<2>, 128>>>;
}

}  // namespace walsh::cuda
