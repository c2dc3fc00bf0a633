// Puts CUDA devices, their memory and streams behind plain C++: this header needs no CUDA toolkit,
// and a build without CUDA has the same functions, which report that there is no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace walsh::cuda {

using Stream = CUstream_st*;

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  uint64_t total_bytes = 0, free_bytes = 0;
  uint64_t l2_bytes = 0, shared_bytes = 0;  // shared memory that one block can ask for
  // The compiled code that runs on this device is of this architecture, as 10 major + minor: it may
  // be an earlier one of the same major version.
  int code = 0;
};

// Returns whether this build contains GPU code at all.
bool compiled();
// Returns the usable devices: none without CUDA, without a driver, or if this build has no code for
// any device. Never throws.
std::vector<DeviceInfo> devices();
// Returns why devices() is empty, for messages: "built without CUDA", "no NVIDIA driver found", ...
std::string unavailable_reason();
// Makes `index` this thread's device. Throws usage if there is no such device.
DeviceInfo use_device(int index);
// Does the same for a device that use_device has accepted, without querying the driver again.
void select_device(int index);

// Raises a kernel's limit of dynamic shared memory to the maximum of the current device. The limit
// belongs to the kernel on that device, so a limit fitted to one launch would be wrong for launches
// of other threads.
void allow_most_shared_memory(const void* kernel, std::string_view name);

// Throws internal (or limit when memory ran out) for a cudaError_t that is not success.
void check(int error, std::string_view what);
// Does the same for the last kernel launch.
void check_launch(std::string_view kernel);

// Owns device memory, 256-byte aligned. Throws limit, with the sizes, when the allocation fails.
// The content is undefined unless zeroed.
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
  // Both functions return at once if nothing was recorded.
  void wait() const;
  void hold_back(Stream stream) const;

 private:
  std::shared_ptr<void> event_;  // a cudaEvent_t
};

// Copies are ordered on `stream`; pinned host memory must stay unchanged until the copy has run.
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

  // The source may be changed on return; the copy is ordered on stream().
  void copy(void* device, const void* host, uint64_t bytes);
  Stream stream() const;
  void synchronize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
