// These stubs are for a build without CUDA, which cannot make DeviceExperts.
#include "api/device_experts.h"

#include "base/no_cuda/unavailable.h"

namespace walsh {

struct DeviceExperts::Impl {};

uint64_t DeviceExperts::memory_bytes(const Shape&) {
  cuda::unavailable();
}

DeviceExperts::DeviceExperts(const Shape&, int, const DeviceMemory&) {
  cuda::unavailable();
}

DeviceExperts::~DeviceExperts() = default;

int DeviceExperts::device() const {
  cuda::unavailable();
}

const DeviceExperts::Shape& DeviceExperts::shape() const {
  cuda::unavailable();
}

int64_t DeviceExperts::padded_cols(size_t) const {
  cuda::unavailable();
}

bool DeviceExperts::encodes_together(size_t) const {
  cuda::unavailable();
}

void DeviceExperts::fill(size_t, int64_t, const Tensor&, cuda::Stream) {
  cuda::unavailable();
}

uint64_t DeviceExperts::workspace_bytes(int64_t, int, DType) const {
  cuda::unavailable();
}

void DeviceExperts::multiply(const Call&, const DeviceMemory&, cuda::Stream) const {
  cuda::unavailable();
}

void DeviceExperts::dequantize(size_t, int64_t, DType, void*, cuda::Stream) const {
  cuda::unavailable();
}

}  // namespace walsh
