// A tensor in host memory sent to the device in slices of rows, so that reading slice k + 2,
// sending slice k + 1 and the kernels on slice k overlap.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "formats/tensor.h"

namespace walsh::cuda {

class SliceStream {
 public:
  SliceStream(uint64_t slice_bytes, ThreadPool* pool);
  ~SliceStream();
  SliceStream(const SliceStream&) = delete;
  SliceStream& operator=(const SliceStream&) = delete;

  // Kernels on slices go here.
  Stream stream() const { return work_.get(); }
  // Rows of a slice of a plain tensor: what fits, at least `multiple` and a multiple of it.
  int64_t slice_rows(const Tensor& source, int64_t multiple) const;
  // f(values, first, rows) launches kernels that read rows [first, first + rows) at `values`, on
  // stream(). On return they may still be running, the source is read.
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
