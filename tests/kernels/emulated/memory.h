// The memory of a device on the host (emulated/device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace emulated {

// What a test takes one after the other and nothing gives back before the next one begins.
struct DeviceMemory {
  static constexpr size_t kBytes = size_t{256} << 20, kAlignment = 256;
  std::byte* all = static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBytes));
  size_t used = 0;

  static DeviceMemory& own() {
    static DeviceMemory memory;
    return memory;
  }
};

inline std::byte* take_memory(uint64_t bytes) {
  DeviceMemory& memory = DeviceMemory::own();
  const size_t at = memory.used;
  memory.used +=
      (bytes + DeviceMemory::kAlignment - 1) / DeviceMemory::kAlignment * DeviceMemory::kAlignment;
  if (memory.used > DeviceMemory::kBytes) std::abort();
  return memory.all + at;
}

}  // namespace emulated
