// CUDA devices, their memory and streams behind plain C++: this header needs nothing of the
// toolkit, and a build without CUDA has the same functions, which then know no device.
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
  // The architecture that the code was compiled for which runs here, as 10 major + minor: it may be
  // an earlier one of the same major.
  int code = 0;
};

// Whether this build contains GPU code at all.
bool compiled();
// Usable devices: empty without CUDA, without a driver, or without a device that this build has
// code for. Never throws.
std::vector<DeviceInfo> devices();
// Why devices() is empty, for messages: "built without CUDA", "no NVIDIA driver found", ...
std::string unavailable_reason();
// Makes `index` the device of this thread. Throws usage if there is no such device.
DeviceInfo use_device(int index);
// The same for a device that use_device has accepted, without asking the driver about it again.
void select_device(int index);

// Lets launches of a kernel have as much dynamic shared memory as there is on the current device.
// The limit belongs to kernel and device, so that one fitted to a launch would be wrong for those
// of other threads.
void allow_most_shared_memory(const void* kernel, std::string_view name);

// Throws internal (or limit when memory ran out) for a cudaError_t that is not success.
void check(int error, std::string_view what);
// The same for the last kernel launch.
void check_launch(std::string_view kernel);

// Device memory, 256-byte aligned. Throws limit with the numbers when it cannot be had. The content
// is undefined unless zeroed.
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

// Page-locked host memory, which copies run from at full speed and asynchronously.
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

// A stream that ends with its owner.
class OwnedStream {
 public:
  OwnedStream();
  Stream get() const { return stream_.get(); }
  void synchronize() const;

 private:
  std::shared_ptr<CUstream_st> stream_;
};

// A point in a stream that the host or another stream can wait for.
class StreamEvent {
 public:
  StreamEvent();
  void record(Stream stream) const;
  // Both return at once, or hold back nothing, if nothing was recorded.
  void wait() const;
  void hold_back(Stream stream) const;

 private:
  std::shared_ptr<void> event_;  // a cudaEvent_t
};

// Ordered on `stream`; host memory must stay until then unless it is pageable.
void copy_to_device(void* device, const void* host, uint64_t bytes, Stream stream);
void copy_to_host(void* host, const void* device, uint64_t bytes, Stream stream);
void copy_on_device(void* to, const void* from, uint64_t bytes, Stream stream);
void fill_zero(void* device, uint64_t bytes, Stream stream);
void synchronize(Stream stream);

// Copies host arrays of any size and alignment to the device through two pinned buffers, so that
// reading the next piece of a mapped file overlaps with sending the last one.
class Uploader {
 public:
  explicit Uploader(uint64_t piece_bytes = uint64_t{8} << 20);
  ~Uploader();

  // On return the source may be changed; the copy is ordered on stream().
  void copy(void* device, const void* host, uint64_t bytes);
  Stream stream() const;
  void synchronize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
