// Emulates device memory (emulated/device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace emulated {

// Buffers follow each other in one piece of memory, so that those of equal things are at equal
// distances. It is empty again when there are none any more.
class DeviceMemory {
 public:
  static std::shared_ptr<void> take(uint64_t bytes) {
    DeviceMemory& own = all();
    if (own.buffers_ == 0) own.used_ = 0;
    const size_t at = own.used_;
    own.used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (own.used_ > kBytes) std::abort();
    ++own.buffers_;
    return {own.memory_ + at, [&own](void*) { --own.buffers_; }};
  }

 private:
  static constexpr size_t kBytes = size_t{256} << 20, kAlignment = 256;
  static DeviceMemory& all() {
    static DeviceMemory memory;
    return memory;
  }

  std::byte* const memory_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBytes));
  size_t used_ = 0;
  int64_t buffers_ = 0;
};

}  // namespace emulated
