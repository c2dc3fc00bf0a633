#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_expert_kernel<ScalarDecoder<8>>(int flush) {
  return flush == 32 ? persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<8>, 32>>>
                     : persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<8>, 128>>>;
}

}  // namespace walsh::cuda
