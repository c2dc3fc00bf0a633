// Kernels for trellis codes, whose scales hold for at least 256 columns.
#include "kernels/cuda/persistent/kernel.cuh"

namespace walsh::cuda {

template <>
PersistentKernel persistent_kernel<TrellisDecoder<4>>(int) {
  return persistent_kernel_of<OneCode<TrellisDecoder<4>, 128>>;
}
template <>
PersistentKernel persistent_kernel<TrellisDecoder<5>>(int) {
  return persistent_kernel_of<OneCode<TrellisDecoder<5>, 128>>;
}
template <>
PersistentKernel persistent_kernel<TrellisDecoder<6>>(int) {
  return persistent_kernel_of<OneCode<TrellisDecoder<6>, 128>>;
}

}  // namespace walsh::cuda
