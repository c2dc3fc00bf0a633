#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_mixer_kernel<ScalarDecoder<4>>() {
  return persistent_kernel_of<WithMixers<OneCode<ScalarDecoder<4>, 128>>>;
}

}  // namespace walsh::cuda
