// Stubs for a build without CUDA, which cannot make DeviceExperts.
#include "api/device_experts.h"

#include "walsh/error.h"

namespace walsh {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::usage, "CUDA", cuda::unavailable_reason());
}

}  // namespace

struct DeviceExperts::Impl {};

uint64_t DeviceExperts::memory_bytes(const Shape&) {
  unavailable();
}

DeviceExperts::DeviceExperts(const Shape&, int, const DeviceMemory&) {
  unavailable();
}

DeviceExperts::~DeviceExperts() = default;

int DeviceExperts::device() const {
  unavailable();
}

const DeviceExperts::Shape& DeviceExperts::shape() const {
  unavailable();
}

int64_t DeviceExperts::padded_cols(size_t) const {
  unavailable();
}

bool DeviceExperts::encodes_together(size_t) const {
  unavailable();
}

void DeviceExperts::fill(size_t, int64_t, const Tensor&, cuda::Stream) {
  unavailable();
}

uint64_t DeviceExperts::workspace_bytes(int64_t, int, DType) const {
  unavailable();
}

void DeviceExperts::multiply(const Call&, const DeviceMemory&, cuda::Stream) const {
  unavailable();
}

void DeviceExperts::dequantize(size_t, int64_t, DType, void*, cuda::Stream) const {
  unavailable();
}

}  // namespace walsh
