// The same functions for a build without CUDA: there is no device, so no caller gets as far as
// needing device memory.
#include "base/cuda/device.h"
#include "base/cuda/first_device.h"

#include "walsh/error.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::usage, "CUDA", unavailable_reason());
}

}  // namespace

bool compiled() {
  return false;
}

std::vector<DeviceInfo> devices() {
  return {};
}

std::optional<int> first_device() {
  return std::nullopt;
}

std::string unavailable_reason() {
  return "this walsh is built without CUDA";
}

DeviceInfo use_device(int) {
  unavailable();
}

void select_device(int) {
  unavailable();
}

}  // namespace walsh::cuda
