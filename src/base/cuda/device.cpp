#include "base/cuda/device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/cuda/counted_memory.h"
#include "base/cuda/device_code.h"
#include "base/cuda/first_device.h"
#include "base/cuda/memory_pool.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

thread_local CountedMemory* counter = nullptr;
thread_local MemoryPool* current_pool = nullptr;
std::atomic<uint64_t> allocated = 0;
char no_memory;  // Counted buffers point to it.

// Returns what an allocation really takes: the driver allocates large pieces in whole pages, and
// small ones as parts of a page.
uint64_t taken_bytes(uint64_t bytes) {
  constexpr uint64_t kPage = uint64_t{2} << 20, kStep = 512;
  const uint64_t unit = bytes < kPage ? kStep : kPage;
  return checked_add(bytes, unit - 1, "GPU memory") / unit * unit;
}

// Clears memory before it returns, because other streams do not wait for the stream that does it.
void fill_zeros(void* memory, uint64_t bytes) {
  check(cudaMemset(memory, 0, bytes), "memset");
  synchronize(nullptr);
}

constexpr int kLeastMajor = 8;  // Asynchronous copies and int8 mma with k = 32 need sm_80.

std::string error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

// Makes device `index` this thread's device. Throws if it cannot be used.
DeviceInfo describe(int index) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "device properties");
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::usage, fmt::format("device cuda:{}", index),
                fmt::format("{} of compute capability {}.{}: {}", properties.name, properties.major,
                            properties.minor, why));
  };
  if (properties.major < kLeastMajor) refuse(fmt::format("{}.0 is needed", kLeastMajor));
  select_device(index);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "device memory");
  DeviceInfo info;
  info.code = detail::device_code();
  if (info.code == 0) refuse("this walsh has no code for it, see WALSH_CUDA_ARCHITECTURES");
  info.index = index;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.total_bytes = properties.totalGlobalMem;
  info.free_bytes = free;
  info.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  info.shared_bytes = properties.sharedMemPerBlockOptin;
  return info;
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

}  // namespace

bool compiled() {
  return true;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> found;
  const int count = device_count();
  int before = 0;
  if (count > 0) cudaGetDevice(&before);
  for (int index = 0; index < count; ++index) {
    try {
      found.push_back(describe(index));
    } catch (const Error&) {  // use_device reports the reason.
    }
  }
  if (count > 0) cudaSetDevice(before);
  cudaGetLastError();  // The error would stay set otherwise.
  return found;
}

std::optional<int> first_device() {
  const int count = device_count();
  for (int index = 0; index < count; ++index) {
    try {
      return describe(index).index;
    } catch (const Error&) {  // use_device reports the reason.
      cudaGetLastError();
    }
  }
  return std::nullopt;
}

std::string unavailable_reason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) return "no NVIDIA driver, or one that is too old";
  if (error != cudaSuccess) return error_text(error);
  if (count == 0) return "no CUDA device";
  try {
    describe(0);
  } catch (const Error& e) {
    return e.what();
  }
  return "no usable CUDA device";
}

DeviceInfo use_device(int index) {
  const int count = device_count();
  if (index >= 0 && index < count) return describe(index);
  throw Error(ErrorCode::usage, fmt::format("device cuda:{}", index),
              count == 0 ? unavailable_reason() : "no such device, see 'walsh devices'");
}

void select_device(int index) {
  check(cudaSetDevice(index), "device");
}

void allow_most_shared_memory(const void* kernel, std::string_view name) {
  static std::mutex mutex;
  static std::set<std::pair<int, const void*>> allowed;
  int device = 0, most = 0;
  check(cudaGetDevice(&device), name);
  const std::lock_guard lock(mutex);
  if (allowed.contains({device, kernel})) return;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), name);
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), name);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        name);
  allowed.insert({device, kernel});
}

void check(int error, std::string_view what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Error(error == cudaErrorMemoryAllocation ? ErrorCode::limit : ErrorCode::internal,
              fmt::format("CUDA {}", what), error_text(error));
}

void check_launch(std::string_view kernel) {
  check(cudaGetLastError(), kernel);
}

CountedMemory::CountedMemory() : outer_(std::exchange(counter, this)) {}

CountedMemory::~CountedMemory() {
  counter = outer_;
}

CountedMemory* CountedMemory::current() {
  return counter;
}

void CountedMemory::add(uint64_t bytes) {
  bytes_ = checked_add(bytes_, bytes, "GPU memory");
  if (outer_ != nullptr) outer_->add(bytes);
}

uint64_t allocated_bytes() {
  return allocated.load();
}

MemoryPool::MemoryPool(uint64_t bytes) : bytes_(bytes), measures_(false) {
  const auto memory = std::make_shared<Buffer>(bytes);
  memory_ = std::shared_ptr<void>(memory, memory->as());
}

MemoryPool::MemoryPool(void* memory, uint64_t bytes)
    : memory_(std::shared_ptr<void>(), memory), bytes_(bytes), measures_(false) {}

MemoryPool* MemoryPool::current() {
  return current_pool;
}

MemoryPool::Scope::Scope(MemoryPool& pool) : outer_(std::exchange(current_pool, &pool)) {}

MemoryPool::Scope::~Scope() {
  current_pool = outer_;
}

std::shared_ptr<void> MemoryPool::take(uint64_t bytes) {
  const uint64_t begin = used_, end = checked_add(begin, bytes, "GPU memory");
  if (!measures_ && end > bytes_) {
    throw Error(ErrorCode::internal, "GPU memory",
                fmt::format("a pool of {} bytes is asked for {}", bytes_, end));
  }
  used_ = checked_align(end, kAlignment, "GPU memory");
  if (measures_) return {std::shared_ptr<void>(), &no_memory};
  return {memory_, static_cast<std::byte*>(memory_.get()) + begin};
}

Buffer::Buffer(uint64_t bytes, bool zeroed) : bytes_(bytes) {
  if (bytes == 0) return;
  if (MemoryPool* pool = MemoryPool::current()) {
    data_ = pool->take(bytes);
    if (zeroed && data_.get() != &no_memory) fill_zeros(data_.get(), bytes);
    return;
  }
  const uint64_t taken = taken_bytes(bytes);
  if (CountedMemory* counted = CountedMemory::current()) {
    counted->add(taken);
    data_ = std::shared_ptr<void>(&no_memory, [](void*) {});
    return;
  }
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(ErrorCode::limit, "GPU memory",
                fmt::format("{} MiB needed, {} of {} MiB are free", (bytes + 0xfffff) >> 20,
                            free >> 20, total >> 20));
  }
  check(error, "allocation");
  allocated += taken;
  data_ = std::shared_ptr<void>(memory, [taken](void* p) {
    cudaFree(p);
    allocated -= taken;
  });
  if (zeroed) fill_zeros(memory, bytes);
}

PinnedBuffer::PinnedBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "pinned memory");
  data_ = std::shared_ptr<void>(memory, [](void* p) { cudaFreeHost(p); });
}

OwnedStream::OwnedStream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  stream_ = std::shared_ptr<CUstream_st>(stream, [](cudaStream_t s) { cudaStreamDestroy(s); });
}

void OwnedStream::synchronize() const {
  cuda::synchronize(stream_.get());
}

StreamEvent::StreamEvent() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  event_ =
      std::shared_ptr<void>(event, [](void* p) { cudaEventDestroy(static_cast<cudaEvent_t>(p)); });
}

void StreamEvent::record(Stream stream) const {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_.get()), stream), "event");
}

void StreamEvent::wait() const {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_.get())), "execution");
}

void StreamEvent::hold_back(Stream stream) const {
  check(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event_.get())), "event");
}

void copy_to_device(void* device, const void* host, uint64_t bytes, Stream stream) {
  if (CountedMemory::current() != nullptr) return;
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "copy to device");
}

void copy_to_host(void* host, const void* device, uint64_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "copy to host");
}

void copy_on_device(void* to, const void* from, uint64_t bytes, Stream stream) {
  if (CountedMemory::current() != nullptr) return;
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy");
}

void fill_zero(void* device, uint64_t bytes, Stream stream) {
  if (CountedMemory::current() != nullptr) return;
  if (bytes == 0) return;
  check(cudaMemsetAsync(device, 0, bytes, stream), "memset");
}

void synchronize(Stream stream) {
  if (CountedMemory::current() != nullptr) return;
  check(cudaStreamSynchronize(stream), "execution");
}

struct Uploader::Impl {
  explicit Impl(uint64_t piece_bytes) : piece(piece_bytes) {
    for (PinnedBuffer& buffer : staging)
      buffer = PinnedBuffer(piece);
  }
  ~Impl() {
    cudaStreamSynchronize(stream.get());  // The staging memory is still being read.
  }

  uint64_t piece;
  OwnedStream stream;
  PinnedBuffer staging[2];
  StreamEvent sent[2];
  int next = 0;
};

Uploader::Uploader(uint64_t piece_bytes) : impl_(std::make_unique<Impl>(piece_bytes)) {}
Uploader::~Uploader() = default;

void Uploader::copy(void* device, const void* host, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t n = std::min(impl_->piece, bytes - done);
    const int slot = impl_->next;
    impl_->next = 1 - slot;
    impl_->sent[slot].wait();
    std::memcpy(impl_->staging[slot].as(), static_cast<const std::byte*>(host) + done, n);
    copy_to_device(static_cast<std::byte*>(device) + done, impl_->staging[slot].as(), n,
                   impl_->stream.get());
    impl_->sent[slot].record(impl_->stream.get());
    done += n;
  }
}

Stream Uploader::stream() const {
  return impl_->stream.get();
}

void Uploader::synchronize() const {
  impl_->stream.synchronize();
}

}  // namespace walsh::cuda
