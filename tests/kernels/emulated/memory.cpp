// Emulates device memory, which is the host's.
#include <cstring>

#include "kernels/emulated/device.h"
//
#include "kernels/cuda/weights/matrix.h"
#include "kernels/emulated/memory.h"

namespace walsh::cuda {

// Fills memory with values other than zero unless zeros are requested.
Buffer::Buffer(uint64_t bytes, bool zeroed) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = emulated::DeviceMemory::take(bytes);
  std::memset(data_.get(), zeroed ? 0 : 0xa5, bytes);
}

void copy_to_device(void* device, const void* host, uint64_t bytes, Stream) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
void copy_to_host(void* host, const void* device, uint64_t bytes, Stream) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}
void copy_on_device(void* to, const void* from, uint64_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void synchronize(Stream) {}

// There is one, so that tests of kernels run.
std::vector<DeviceInfo> devices() {
  return {DeviceInfo()};
}
std::string unavailable_reason() {
  return {};
}

Activations::Activations(int64_t most, int64_t columns, int columns_of_scale, int count)
    : cols(columns),
      group(columns_of_scale),
      planes(count),
      max_m(most),
      q(static_cast<uint64_t>(most * count * columns)),
      scales(static_cast<uint64_t>(most * count * columns / columns_of_scale) * sizeof(float)),
      sums(static_cast<uint64_t>(most * count * columns / columns_of_scale) * sizeof(int32_t)) {}

}  // namespace walsh::cuda
