#include "kernels/emulated/device.h"
//
#define __CUDA_ARCH__ 900
//
#include "kernels/cuda/persistent/kernel.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "emulated program", "no kernel");
}

}  // namespace

// Those of 3 bits, and of 2 to 4 bits, with experts, and of 3 bits with other mixers: every other
// one takes as long to compile.
template <typename Decoder>
PersistentKernel persistent_kernel(int) {
  refuse();
}
template <typename Decoder>
PersistentKernel persistent_expert_kernel(int) {
  refuse();
}
template <>
PersistentKernel persistent_expert_kernel<ScalarDecoder<3>>(int) {
  return persistent_kernel_of<WithExperts<OneCode<ScalarDecoder<3>, 128>>>;
}
template <typename Decoder>
PersistentKernel persistent_mixer_kernel() {
  refuse();
}
template <>
PersistentKernel persistent_mixer_kernel<ScalarDecoder<3>>() {
  return persistent_kernel_of<WithMixers<OneCode<ScalarDecoder<3>, 128>>>;
}
template <typename Decoder>
PersistentKernel persistent_mixer_expert_kernel() {
  refuse();
}
template <>
PersistentKernel persistent_mixer_expert_kernel<ScalarDecoder<3>>() {
  return persistent_kernel_of<WithMixers<WithExperts<OneCode<ScalarDecoder<3>, 128>>>>;
}
PersistentKernel persistent_mixer_kernel_of_several() {
  refuse();
}
PersistentKernel persistent_mixer_expert_kernel_of_several() {
  refuse();
}
PersistentKernel persistent_kernel_of_several(bool, bool) {
  refuse();
}
PersistentKernel persistent_expert_kernel_of_several(bool) {
  return persistent_kernel_of<
      WithExperts<SeveralCodes<128, ScalarDecoder<2>, ScalarDecoder<3>, ScalarDecoder<4>>>>;
}
template PersistentKernel persistent_kernel<ScalarDecoder<2>>(int);
template PersistentKernel persistent_kernel<ScalarDecoder<3>>(int);
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
template PersistentKernel persistent_mixer_kernel<ScalarDecoder<2>>();
template PersistentKernel persistent_mixer_kernel<ScalarDecoder<4>>();
template PersistentKernel persistent_mixer_expert_kernel<ScalarDecoder<2>>();
template PersistentKernel persistent_mixer_expert_kernel<ScalarDecoder<4>>();

}  // namespace walsh::cuda
