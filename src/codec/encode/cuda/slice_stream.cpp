#include "codec/encode/cuda/slice_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

namespace walsh::cuda {
namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;  // One thread copies this much at a time.

uint64_t row_bytes(const Tensor& source) {
  return static_cast<uint64_t>(source.cols * dtype_size(source.format->dtype));
}

}  // namespace

struct SliceStream::Events {
  StreamEvent sent[2];  // After these the staging buffer may be written and the slice read.
  StreamEvent used[2];  // After these the slice may be written.
};

SliceStream::SliceStream(uint64_t slice_bytes, ThreadPool* pool)
    : slice_bytes_(slice_bytes), pool_(pool), events_(std::make_unique<Events>()) {}

SliceStream::~SliceStream() {
  cudaStreamSynchronize(copy_.get());
  cudaStreamSynchronize(work_.get());
}

int64_t SliceStream::slice_rows(const Tensor& source, int64_t multiple) const {
  const auto fit = static_cast<int64_t>(slice_bytes_ / row_bytes(source));
  return std::max(fit / multiple, int64_t{1}) * multiple;
}

void SliceStream::for_each(const Tensor& source, int64_t multiple,
                           FunctionRef<void(const void*, int64_t, int64_t)> f) {
  const int64_t step = slice_rows(source, multiple);
  if (source.on_gpu) {
    for (int64_t first = 0; first < source.rows; first += step)
      f(source.data.data() + row_bytes(source) * static_cast<uint64_t>(first), first,
        std::min(step, source.rows - first));
    return;
  }
  const uint64_t bytes = row_bytes(source) * static_cast<uint64_t>(std::min(step, source.rows));
  if (slices_[0].bytes() < bytes) {
    synchronize(work_.get());
    for (int slot = 0; slot < 2; ++slot) {
      staging_[slot] = PinnedBuffer(bytes);
      slices_[slot] = Buffer(bytes);
    }
  }
  int slot = 0;
  for (int64_t first = 0; first < source.rows; first += step, slot = 1 - slot) {
    const int64_t rows = std::min(step, source.rows - first);
    const uint64_t size = row_bytes(source) * static_cast<uint64_t>(rows);
    auto* staging = staging_[slot].as<std::byte>();
    events_->sent[slot].wait();
    read(source.data.data() + row_bytes(source) * static_cast<uint64_t>(first), staging, size);
    events_->used[slot].hold_back(copy_.get());
    copy_to_device(slices_[slot].as(), staging, size, copy_.get());
    events_->sent[slot].record(copy_.get());
    events_->sent[slot].hold_back(work_.get());
    f(slices_[slot].as(), first, rows);
    events_->used[slot].record(work_.get());
  }
}

void SliceStream::read(const std::byte* from, std::byte* to, uint64_t bytes) {
  if (pool_ == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  const uint64_t pieces = (bytes + kReadBytes - 1) / kReadBytes;
  pool_->for_each(static_cast<int64_t>(pieces), [&](int64_t piece) {
    const uint64_t begin = static_cast<uint64_t>(piece) * kReadBytes;
    std::memcpy(to + begin, from + begin, std::min(kReadBytes, bytes - begin));
  });
}

}  // namespace walsh::cuda
