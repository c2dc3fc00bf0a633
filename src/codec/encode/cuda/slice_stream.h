// Gives a tensor to kernels in slices of rows. A tensor in host memory is sent to the device so
// that reading slice k + 2, sending slice k + 1 and the kernels on slice k overlap. A tensor on the
// device is read in place.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "codec/tensor.h"

namespace walsh::cuda {

class SliceStream {
 public:
  SliceStream(uint64_t slice_bytes, ThreadPool* pool);
  ~SliceStream();
  SliceStream(const SliceStream&) = delete;
  SliceStream& operator=(const SliceStream&) = delete;

  // Returns the stream on which kernels read the slices.
  Stream stream() const { return work_.get(); }
  // Returns how many rows of a dense tensor fit into a slice. The number is a multiple of
  // `multiple`, and at least that.
  int64_t slice_rows(const Tensor& source, int64_t multiple) const;
  // Calls f(values, first, rows), which launches kernels on stream() that read rows [first, first +
  // rows) at `values`. On return the kernels may still be running, but the source has been read.
  void for_each(const Tensor& source, int64_t multiple,
                FunctionRef<void(const void* values, int64_t first, int64_t rows)> f);

 private:
  void read(const std::byte* from, std::byte* to, uint64_t bytes);

  uint64_t slice_bytes_;
  ThreadPool* pool_;
  OwnedStream copy_, work_;
  PinnedBuffer staging_[2];
  Buffer slices_[2];
  struct Events;
  std::unique_ptr<Events> events_;
};

}  // namespace walsh::cuda
