#include "kernels/emulated/device.h"
//
#define __CUDA_ARCH__ 900
//
#include "kernels/cuda/persistent/kernel_3.cu"
//
#include "kernels/cuda/persistent/kernel_experts_3.cu"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "emulated program", "is of 3 bits");
}

}  // namespace

template <typename Decoder>
PersistentKernel persistent_kernel(int) {
  refuse();
}
template <typename Decoder>
PersistentKernel persistent_expert_kernel(int) {
  refuse();
}
PersistentKernel persistent_kernel_of_several(bool, bool) {
  refuse();
}
PersistentKernel persistent_expert_kernel_of_several(bool) {
  refuse();
}
template PersistentKernel persistent_kernel<ScalarDecoder<2>>(int);
template PersistentKernel persistent_kernel<ScalarDecoder<4>>(int);
template PersistentKernel persistent_kernel<ScalarDecoder<8>>(int);
template PersistentKernel persistent_kernel<TrellisDecoder<4>>(int);
template PersistentKernel persistent_kernel<TrellisDecoder<5>>(int);
template PersistentKernel persistent_kernel<TrellisDecoder<6>>(int);
template PersistentKernel persistent_kernel<TrellisDecoder<7>>(int);
template PersistentKernel persistent_kernel<TrellisDecoder<8>>(int);
template PersistentKernel persistent_expert_kernel<ScalarDecoder<2>>(int);
template PersistentKernel persistent_expert_kernel<ScalarDecoder<4>>(int);
template PersistentKernel persistent_expert_kernel<ScalarDecoder<8>>(int);

}  // namespace walsh::cuda
