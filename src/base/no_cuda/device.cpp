// Implements the functions for a build without CUDA. There is no device, so no caller gets as far
// as needing device memory.
#include "base/cuda/device.h"
#include "base/cuda/first_device.h"

#include "base/no_cuda/unavailable.h"

namespace walsh::cuda {

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
