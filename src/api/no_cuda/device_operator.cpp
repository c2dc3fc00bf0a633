// These stubs are for a build without CUDA, which cannot make a DeviceOperator.
#include "api/device_operator.h"

#include "base/no_cuda/unavailable.h"

namespace walsh {

struct DeviceOperator::Impl {};

DeviceOperator::DeviceOperator(const LinearOperator&, int) {
  cuda::unavailable();
}

DeviceOperator::DeviceOperator(const LayerForm&, const Tensor&, int, const DeviceMemory&,
                               cuda::Stream) {
  cuda::unavailable();
}

uint64_t DeviceOperator::memory_bytes(const LayerForm&) {
  cuda::unavailable();
}

DeviceOperator::~DeviceOperator() = default;

int DeviceOperator::device() const {
  cuda::unavailable();
}

const LayerForm& DeviceOperator::form() const {
  cuda::unavailable();
}

uint64_t DeviceOperator::bytes() const {
  cuda::unavailable();
}

int64_t DeviceOperator::padded_cols() const {
  cuda::unavailable();
}

bool DeviceOperator::multiplies(int64_t, bool) const {
  cuda::unavailable();
}

uint64_t DeviceOperator::workspace_bytes(int64_t, DType) const {
  cuda::unavailable();
}

void DeviceOperator::multiply(const MatrixView&, void*, int64_t, Workspace, cuda::Stream) const {
  cuda::unavailable();
}

void DeviceOperator::dequantize(DType, void*, cuda::Stream) const {
  cuda::unavailable();
}

}  // namespace walsh
