// Kernels for models that have trellis codes and scalar codes.
#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

PersistentKernel persistent_kernel_of_trellises() {
  using All =
      SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, TrellisDecoder<4>,
                   TrellisDecoder<5>, TrellisDecoder<6>, TrellisDecoder<7>, TrellisDecoder<8>>;
  static_assert(All::kMemory == program_memory_of_several(false));
  return persistent_kernel_of<All>;
}

}  // namespace walsh::cuda
