// Launches kernels. All decode kernels ask for the largest shared memory partition, because a
// kernel with another one cannot run beside them while the next kernel's weights are being fetched.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>
#include <type_traits>

#include "base/cuda/device.h"

namespace walsh::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  unsigned cluster = 1;  // A cluster has this many blocks.
  // If true, blocks wait for each other, so all of them must run at the same time, even beside
  // other such launches. This needs sm_90 or later.
  bool cooperative = false;
};

// Returns the properties of the current device, which are queried once per device.
const DeviceInfo& current_device();

namespace detail {
// Returns how many clusters of a kernel can run at the same time on the device.
int most_clusters(std::string_view name, const void* kernel, const LaunchShape& shape);
void launch(std::string_view name, const void* kernel, const LaunchShape& shape, Stream stream,
            void** parameters);
bool is_compiled(const void* kernel);
}  // namespace detail

template <typename... Parameters>
int most_clusters(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape) {
  return detail::most_clusters(name, reinterpret_cast<const void*>(kernel), shape);
}

// Returns whether the build has code of `kernel` for the current device. Kernels that need
// instructions of one architecture are empty for all others.
template <typename... Parameters>
bool has_body(void (*kernel)(Parameters...)) {
  return detail::is_compiled(reinterpret_cast<const void*>(kernel));
}

// Launches `kernel`. On sm_90 and later it depends on the kernel before it, so it must call
// wait_previous_kernel().
template <typename... Parameters>
void launch(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape,
            Stream stream, std::type_identity_t<Parameters>... parameters) {
  void* list[] = {&parameters...};
  detail::launch(name, reinterpret_cast<const void*>(kernel), shape, stream, list);
}

}  // namespace walsh::cuda
