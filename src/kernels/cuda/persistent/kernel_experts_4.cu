#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_expert_kernel<ScalarDecoder<4>>(int flush) {
  return flush == 32 ? persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<4>, 32>>>
                     : persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<4>, 128>>>;
}

}  // namespace walsh::cuda
