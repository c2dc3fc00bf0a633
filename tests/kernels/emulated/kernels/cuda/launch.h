// Launches on the host (emulated/device.h).
#pragma once

#include <string_view>
#include <type_traits>

#include "base/cuda/device.h"
#include "kernels/emulated/device.h"

namespace walsh::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
};

// A device with the shared memory of an H200.
inline const DeviceInfo& current_device() {
  static const DeviceInfo device = [] {
    DeviceInfo info;
    info.shared_bytes = size_t{227} << 10;
    info.multiprocessors = 132;
    return info;
  }();
  return device;
}

template <typename... Parameters>
void launch(std::string_view, void (*kernel)(Parameters...), const LaunchShape& shape, Stream,
            std::type_identity_t<Parameters>... parameters) {
  gridDim = shape.grid;
  blockDim = shape.block;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        emulated::Block(static_cast<int>(shape.block.x), shape.shared, [&] {
          kernel(parameters...);
        }).run();
      }
    }
  }
}

}  // namespace walsh::cuda
