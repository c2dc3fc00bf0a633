#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_mixer_expert_kernel<ScalarDecoder<2>>() {
  return persistent_kernel_of<WithMixers<WithExperts<OneCode<ScalarDecoder<2>, 128>>>>;
}

}  // namespace walsh::cuda
