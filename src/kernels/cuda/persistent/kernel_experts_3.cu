#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_expert_kernel<ScalarDecoder<3>>(int flush) {
  return flush == 32 ? persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<3>, 32>>>
                     : persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<3>, 128>>>;
}

}  // namespace walsh::cuda
