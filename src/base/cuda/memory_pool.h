// Puts many small buffers into one allocation. The driver allocates pages of 2 MiB, of which a
// single expert's matrix would waste a part. The matrices of a layer's experts also need one
// stride, and other frameworks bring memory of their own.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda/device.h"

namespace walsh::cuda {

class MemoryPool {
 public:
  static constexpr uint64_t kAlignment = 256;  // Every buffer is aligned to it.

  // Makes a pool that only measures. Its buffers get no memory, as under CountedMemory.
  MemoryPool() = default;
  // Makes a pool of one allocation of `bytes`, which lives as long as any of its buffers.
  explicit MemoryPool(uint64_t bytes);
  // Makes a pool of memory that belongs to the caller, such as another framework's. It must be
  // aligned to kAlignment and outlive the buffers and all work that uses them.
  MemoryPool(void* memory, uint64_t bytes);

  // Takes this thread's buffers from the pool, one after the other, as long as it exists.
  class Scope {
   public:
    explicit Scope(MemoryPool& pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MemoryPool* outer_;
  };

  // Returns the bytes of the buffers taken so far, each rounded up to kAlignment.
  uint64_t used() const { return used_; }
  // Returns the pool of this thread's innermost scope, or null.
  static MemoryPool* current();
  // Returns memory for the next buffer. Throws internal if the pool has fewer bytes left.
  std::shared_ptr<void> take(uint64_t bytes);

 private:
  std::shared_ptr<void> memory_;
  uint64_t bytes_ = 0, used_ = 0;
  bool measures_ = true;
};

}  // namespace walsh::cuda
