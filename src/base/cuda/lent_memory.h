// Device memory of somebody else that buffers are cut from: workspaces of a call whose caller, such
// as the allocator of another framework, owns them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh::cuda {

// While it lives, buffers that this thread makes are parts of `memory`, one behind the other, and
// are not freed. It must outlive them and all work that uses them. They cannot be zeroed.
class LentMemory {
 public:
  static constexpr uint64_t kAlignment = 256;  // of `memory`, and of every buffer

  LentMemory(void* memory, uint64_t bytes);
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  // The innermost one of this thread, or null.
  static LentMemory* current();
  // Throws internal if so many bytes are not left.
  void* take(uint64_t bytes);

 private:
  LentMemory* outer_;
  std::byte* next_;
  uint64_t left_;
};

}  // namespace walsh::cuda
