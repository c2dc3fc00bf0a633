#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_mixer_expert_kernel<ScalarDecoder<4>>() {
  return persistent_kernel_of<WithMixers<WithExperts<OneCode<ScalarDecoder<4>, 128>>>>;
}

}  // namespace walsh::cuda
