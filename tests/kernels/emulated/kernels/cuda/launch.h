// Launches on the host (emulated/device.h).
#pragma once

#include <memory>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/cuda/device.h"
#include "kernels/emulated/cluster.h"
#include "kernels/emulated/device.h"

namespace emulated {

// The device has so many multiprocessors; tests of concurrent blocks have few.
inline int multiprocessors = 132;
inline bool has_clusters = true;

}  // namespace emulated

namespace walsh::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  unsigned cluster = 1;
  bool cooperative = false;
};

// Returns a device with the shared memory of an H200.
inline const DeviceInfo& current_device() {
  static DeviceInfo device;
  device.shared_bytes = size_t{227} << 10;
  device.multiprocessors = emulated::multiprocessors;
  return device;
}

template <typename... Parameters>
int most_clusters(std::string_view, void (*)(Parameters...), const LaunchShape&) {
  return emulated::has_clusters ? emulated::multiprocessors / 2 : 0;
}

// Instructions of one architecture are not emulated.
template <typename... Parameters>
bool has_body(void (*)(Parameters...)) {
  return false;
}

// Every block is a thread.
template <typename Kernel>
void launch_together(const LaunchShape& shape, const Kernel& kernel) {
  std::vector<std::unique_ptr<emulated::Cluster>> clusters;
  for (unsigned i = 0; i < shape.grid.x; i += shape.cluster)
    clusters.push_back(std::make_unique<emulated::Cluster>(static_cast<int>(shape.cluster)));
  std::vector<std::thread> blocks;
  for (unsigned i = 0; i < shape.grid.x; ++i) {
    blocks.emplace_back([&, i] {
      gridDim = shape.grid;
      blockDim = shape.block;
      blockIdx.x = i;
      emulated::Block block(static_cast<int>(shape.block.x), shape.shared, kernel);
      emulated::Cluster::current() = clusters[i / shape.cluster].get();
      emulated::Cluster::own().add(emulated::Window::of(block));
      block.run();
    });
  }
  for (std::thread& block : blocks)
    block.join();
}

template <typename... Parameters>
void launch(std::string_view, void (*kernel)(Parameters...), const LaunchShape& shape, Stream,
            std::type_identity_t<Parameters>... parameters) {
  if (shape.cooperative || shape.cluster > 1)
    return launch_together(shape, [&] { kernel(parameters...); });
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
