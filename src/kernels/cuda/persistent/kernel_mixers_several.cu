// Kernels for models with other mixers whose matrices have different codes.
#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

PersistentKernel persistent_mixer_kernel_of_several() {
  using Narrow = SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>>;
  static_assert(Narrow::kMemory == program_memory_of_several(false));
  return persistent_kernel_of<WithMixers<Narrow>>;
}

}  // namespace walsh::cuda
