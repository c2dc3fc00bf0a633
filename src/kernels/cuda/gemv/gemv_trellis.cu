#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {
namespace {

template <typename Decoder>
GemvKernel kernel_of(const GemvKind& kind) {
  return kind.flush == 32 ? select_kernel<Decoder, 32>(kind) : select_kernel<Decoder, 128>(kind);
}

}  // namespace

template <>
GemvKernel gemv_kernel<TrellisDecoder<4>>(const GemvKind& kind) {
  return kernel_of<TrellisDecoder<4>>(kind);
}
template <>
GemvKernel gemv_kernel<TrellisDecoder<6>>(const GemvKind& kind) {
  return kernel_of<TrellisDecoder<6>>(kind);
}
template <>
GemvKernel gemv_kernel<TrellisDecoder<8>>(const GemvKind& kind) {
  return kernel_of<TrellisDecoder<8>>(kind);
}

}  // namespace walsh::cuda
