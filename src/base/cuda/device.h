// Puts CUDA devices, their memory and streams behind plain C++. This header needs no CUDA toolkit.
// A build without CUDA has the same functions, which report that there is no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct CUstream_st;  // A cudaStream_t points to it.

namespace walsh::cuda {

using Stream = CUstream_st*;

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // It is the compute capability.
  int multiprocessors = 0;
  uint64_t total_bytes = 0, free_bytes = 0;
  // A block can use at most shared_bytes of shared memory.
  uint64_t l2_bytes = 0, shared_bytes = 0;
  // The device runs code compiled for this architecture, given as 10 major + minor. It may be an
  // earlier one of the same major version.
  int code = 0;
};

// Returns whether this build contains GPU code.
bool compiled();
// Returns the usable devices. There are none without CUDA, without a driver, or if this build has
// no code for any device. Never throws.
std::vector<DeviceInfo> devices();
// Returns why devices() is empty, for messages such as "built without CUDA" or "no NVIDIA driver
// found".
std::string unavailable_reason();
// Makes `index` this thread's device. Throws usage if there is no such device.
DeviceInfo use_device(int index);
// Makes a device that use_device has accepted this thread's device, without querying the driver
// again.
void select_device(int index);

// Raises a kernel's limit of dynamic shared memory to the maximum of the current device. The limit
// belongs to the kernel on that device, so a limit that suits one launch would be wrong for
// launches of other threads.
void allow_most_shared_memory(const void* kernel, std::string_view name);

// Throws if a cudaError_t is not success: limit if memory ran out, otherwise internal.
void check(int error, std::string_view what);
// Throws in the same way if the last kernel launch failed.
void check_launch(std::string_view kernel);

// Owns device memory, which is aligned to 256 bytes. Throws limit with the sizes if the allocation
// fails. The content is undefined unless `zeroed`.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(uint64_t bytes, bool zeroed = false);

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  uint64_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

 private:
  std::shared_ptr<void> data_;
  uint64_t bytes_ = 0;
};

// Owns page-locked host memory, from which copies run asynchronously and at full speed.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(uint64_t bytes);

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> data_;
  uint64_t bytes_ = 0;
};

// Owns a stream and destroys it.
class OwnedStream {
 public:
  OwnedStream();
  Stream get() const { return stream_.get(); }
  void synchronize() const;

 private:
  std::shared_ptr<CUstream_st> stream_;
};

// Marks a point in a stream that the host or another stream can wait for.
class StreamEvent {
 public:
  StreamEvent();
  void record(Stream stream) const;
  // These wait for the mark. Both return at once if nothing was recorded.
  void wait() const;
  void hold_back(Stream stream) const;

 private:
  std::shared_ptr<void> event_;  // It points to a cudaEvent_t.
};

// These copies are ordered on `stream`. Pinned host memory must stay unchanged until the copy has
// run.
void copy_to_device(void* device, const void* host, uint64_t bytes, Stream stream);
void copy_to_host(void* host, const void* device, uint64_t bytes, Stream stream);
void copy_on_device(void* to, const void* from, uint64_t bytes, Stream stream);
void fill_zero(void* device, uint64_t bytes, Stream stream);
void synchronize(Stream stream);

// Copies host arrays of any size and alignment to the device through two pinned buffers, so that
// reading the next piece of a mapped file overlaps with the transfer of the last one.
class Uploader {
 public:
  explicit Uploader(uint64_t piece_bytes = uint64_t{8} << 20);
  ~Uploader();

  // Copies to the device, in the order of stream(). The caller may change the source after the
  // return.
  void copy(void* device, const void* host, uint64_t bytes);
  Stream stream() const;
  void synchronize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
