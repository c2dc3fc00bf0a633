// Counts device memory that would be taken: what a model will need is found by making its buffers
// under a counter.
#pragma once

#include <cstdint>

namespace walsh::cuda {

// While it lives, buffers that this thread makes take no memory, and copies to them do nothing;
// their addresses must not be used. Counters nest: an outer one counts what inner ones do.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  uint64_t bytes() const { return bytes_; }

  // The innermost one of this thread, or null.
  static CountedMemory* current();
  void add(uint64_t bytes);

 private:
  CountedMemory* outer_;
  uint64_t bytes_ = 0;
};

// Bytes of all buffers of this process that exist, on all devices, as they are counted.
uint64_t allocated_bytes();

}  // namespace walsh::cuda
