// Kernels for models whose matrices have different codes.
#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

PersistentKernel persistent_kernel_of_several(bool wide, bool trellis) {
  using Narrow = SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>>;
  using Wide =
      SeveralCodes<32, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>, ScalarDecoder<8>>;
  static_assert(Narrow::kMemory == program_memory_of_several(false));
  static_assert(Wide::kMemory == program_memory_of_several(true));
  if (trellis) return persistent_kernel_of_trellises();
  return wide ? persistent_kernel_of<Wide> : persistent_kernel_of<Narrow>;
}

}  // namespace walsh::cuda
