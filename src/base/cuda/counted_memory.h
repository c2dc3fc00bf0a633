// Counts device memory without allocating it. The plan for a model makes its buffers under such a
// counter.
#pragma once

#include <cstdint>

namespace walsh::cuda {

// Counts while it exists: buffers that this thread makes take no memory, and copies to them do
// nothing. Their addresses must not be used. Counters nest; an outer one includes what inner ones
// count.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  uint64_t bytes() const { return bytes_; }

  // Returns this thread's innermost counter, or null.
  static CountedMemory* current();
  void add(uint64_t bytes);

 private:
  CountedMemory* outer_;
  uint64_t bytes_ = 0;
};

// Returns the bytes of all buffers on all devices, rounded up as the driver allocates them.
uint64_t allocated_bytes();

}  // namespace walsh::cuda
