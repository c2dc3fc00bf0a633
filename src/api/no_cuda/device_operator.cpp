// Stubs for a build without CUDA, which cannot make a DeviceOperator.
#include "api/device_operator.h"

#include "walsh/error.h"

namespace walsh {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::usage, "CUDA", cuda::unavailable_reason());
}

}  // namespace

struct DeviceOperator::Impl {};

DeviceOperator::DeviceOperator(const LinearOperator&, int) {
  unavailable();
}

DeviceOperator::DeviceOperator(const LayerForm&, const Tensor&, int, const DeviceMemory&,
                               cuda::Stream) {
  unavailable();
}

uint64_t DeviceOperator::memory_bytes(const LayerForm&) {
  unavailable();
}

DeviceOperator::~DeviceOperator() = default;

int DeviceOperator::device() const {
  unavailable();
}

const LayerForm& DeviceOperator::form() const {
  unavailable();
}

uint64_t DeviceOperator::bytes() const {
  unavailable();
}

int64_t DeviceOperator::padded_cols() const {
  unavailable();
}

bool DeviceOperator::multiplies(int64_t, bool) const {
  unavailable();
}

uint64_t DeviceOperator::workspace_bytes(int64_t, DType) const {
  unavailable();
}

void DeviceOperator::multiply(const MatrixView&, void*, int64_t, Workspace, cuda::Stream) const {
  unavailable();
}

void DeviceOperator::dequantize(DType, void*, cuda::Stream) const {
  unavailable();
}

}  // namespace walsh
