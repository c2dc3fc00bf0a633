// A build without CUDA has no device: the constructor of the encoder throws and says so.
#include "codec/encode/cuda/encoder.h"

#include "base/no_cuda/unavailable.h"

namespace walsh::cuda {

struct GpuEncoder::Impl {};

GpuEncoder::GpuEncoder(int, ThreadPool*, uint64_t) {
  unavailable();
}
GpuEncoder::~GpuEncoder() = default;

bool GpuEncoder::supports(const Format&, const Rotation (&)[2], int64_t) const {
  return false;
}

EncodedMatrix GpuEncoder::encode(const Format&, const Rotation (&)[2], const EncodeOptions&,
                                 const Tensor&, std::span<const float>) {
  unavailable();
}

Tensor GpuEncoder::encode_on_device(const Format&, const Rotation (&)[2], const EncodeOptions&,
                                    const Tensor&, std::span<const float>, double*, double*) {
  unavailable();
}

Tensor GpuEncoder::encode_to_host(const Format&, const Rotation (&)[2], const EncodeOptions&,
                                  const Tensor&, std::span<const float>, double*, double*) {
  unavailable();
}

detail::TileDevice& GpuEncoder::tiles() {
  unavailable();
}

std::vector<detail::TileDevice*> GpuEncoder::shared_tiles() {
  unavailable();
}

void GpuEncoder::add_column_norms(const Tensor&, std::span<double>) {
  unavailable();
}

}  // namespace walsh::cuda
