// Many small buffers in one piece of memory: the driver gives memory in pages of 2 MiB, of which a
// matrix of an expert would waste a part; what belongs together has one distance; and calls of
// other frameworks bring their own.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda/device.h"

namespace walsh::cuda {

class MemoryPool {
 public:
  static constexpr uint64_t kAlignment = 256;  // of every buffer

  // Only measures: buffers have no memory, as under CountedMemory.
  MemoryPool() = default;
  // Buffers are parts of one allocation of so many bytes, which lives as long as any of them.
  explicit MemoryPool(uint64_t bytes);
  // Buffers are parts of somebody else's memory, such as another framework's, which must outlive
  // them and all work that uses them. It is aligned to kAlignment.
  MemoryPool(void* memory, uint64_t bytes);

  // While it lives, buffers that this thread makes are taken from the pool, one behind the other.
  class Scope {
   public:
    explicit Scope(MemoryPool& pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MemoryPool* outer_;
  };

  // Bytes of the buffers so far, each rounded up to its alignment.
  uint64_t used() const { return used_; }
  // The pool of this thread's innermost scope, or null.
  static MemoryPool* current();
  // Throws internal if the pool does not have them.
  std::shared_ptr<void> take(uint64_t bytes);

 private:
  std::shared_ptr<void> memory_;
  uint64_t bytes_ = 0, used_ = 0;
  bool measures_ = true;
};

}  // namespace walsh::cuda
