#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_mixer_expert_kernel<ScalarDecoder<3>>() {
  return persistent_kernel_of<WithMixers<WithExperts<OneCode<ScalarDecoder<3>, 128>>>>;
}

}  // namespace walsh::cuda
