// Uploads small arrays to a GPU in the order of a stream, without blocking the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/cuda/device.h"

namespace walsh {

// Copies through a ring of pieces of pinned memory. The host waits for a piece only if all of them
// are still in flight, i.e. if more than a megabyte of copies is waiting in the stream.
class PinnedUploads {
 public:
  // Copies `bytes` bytes when `stream` reaches this point. The caller may change `host` after the
  // return.
  void copy(void* device, const void* host, uint64_t bytes, cuda::Stream stream) {
    for (uint64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      const uint64_t count = std::min(kPieceBytes, bytes - begin);
      const size_t piece = next_;
      next_ = (next_ + 1) % kPieces;
      sent_[piece].wait();
      auto* pinned = memory_.as<unsigned char>() + piece * kPieceBytes;
      std::memcpy(pinned, static_cast<const unsigned char*>(host) + begin, count);
      cuda::copy_to_device(static_cast<unsigned char*>(device) + begin, pinned, count, stream);
      sent_[piece].record(stream);
    }
  }

 private:
  static constexpr size_t kPieces = 16;
  static constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

  cuda::PinnedBuffer memory_{kPieces * kPieceBytes};
  std::array<cuda::StreamEvent, kPieces> sent_;
  size_t next_ = 0;
};

}  // namespace walsh
