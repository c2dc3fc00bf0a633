// Kernels for trellis codes of more than three bits.
#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_kernel<TrellisDecoder<7>>(int) {
  return persistent_kernel_of<OneCode<TrellisDecoder<7>, 128>>;
}
template <>
PersistentKernel persistent_kernel<TrellisDecoder<8>>(int) {
  return persistent_kernel_of<OneCode<TrellisDecoder<8>, 128>>;
}

}  // namespace walsh::cuda
