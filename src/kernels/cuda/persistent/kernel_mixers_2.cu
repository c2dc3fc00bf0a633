#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_mixer_kernel<ScalarDecoder<2>>() {
  return persistent_kernel_of<WithMixers<OneCode<ScalarDecoder<2>, 128>>>;
}

}  // namespace walsh::cuda
