// Keeps the layers that Python names by numbers, and the threads that multiply with them.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "api/device_experts.h"
#include "api/device_operator.h"
#include "api/linear_operator.h"
#include "calls.h"
#include "walsh/error.h"

namespace walsh::python {

// Multiplies with the OpenMP threads of the host. Two sets of threads on the same cores wait for
// each other: those of OpenMP spin for milliseconds behind each parallel region, and may be bound
// to cores.
class HostThreads {
 public:
  HostThreads() = default;
  // Takes the addresses of GOMP_parallel, omp_get_thread_num and omp_get_num_threads in the runtime
  // that the host uses; those of Intel and LLVM have the first as well.
  HostThreads(uint64_t parallel, uint64_t thread, uint64_t threads)
      : parallel_(reinterpret_cast<Parallel>(parallel)),
        thread_(reinterpret_cast<Number>(thread)),
        threads_(reinterpret_cast<Number>(threads)) {}

  bool usable() const { return parallel_ != nullptr; }
  void run(FunctionRef<void(int, int)> task) const {
    Region region{this, task, {}, {}};
    parallel_(&HostThreads::work, &region, 0, 0);
    if (region.error) std::rethrow_exception(region.error);
  }

 private:
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  using Number = int (*)();
  struct Region {
    const HostThreads* host;
    FunctionRef<void(int, int)> task;
    std::mutex mutex;
    std::exception_ptr error;
  };
  static void work(void* data) {
    auto& region = *static_cast<Region*>(data);
    try {
      region.task(region.host->thread_(), region.host->threads_());
    } catch (...) {  // may not leave a parallel region
      const std::lock_guard lock(region.mutex);
      region.error = std::current_exception();
    }
  }

  Parallel parallel_ = nullptr;
  Number thread_ = nullptr, threads_ = nullptr;
};

// A layer has its weights packed for the CPU, which are what it is stored and decoded from, and
// those on the GPU that it was moved to, if any. Layers that were made on a GPU have only these.
struct Layer {
  std::shared_ptr<const LinearOperator> host;
  std::shared_ptr<const DeviceOperator> device;

  const LayerForm& form() const { return host ? host->form() : device->form(); }
  const LinearOperator& on_host() const {
    if (host) return *host;
    throw Error(ErrorCode::usage, "layer", "its weights are on a GPU alone");
  }
};

// Keeps the layers of this process by number, and the threads that multiply with them. A number
// comes from what is in the layer: programs that PyTorch saves (torch.export, torch.jit) have it in
// them, and in another process it must not be that of another layer.
class Layers {
 public:
  static Layers& all() {
    static Layers* layers = new Layers;  // threads of the interpreter may outlive static objects
    return *layers;
  }

  int64_t add(LinearOperator layer) {
    auto number = static_cast<int64_t>(layer.fingerprint() >> 2) & ~kTwins;
    const std::lock_guard lock(mutex_);
    do {
      ++number;  // 0 is none
    } while (layers_.contains(number));
    layers_.emplace(number, Layer{std::make_shared<const LinearOperator>(std::move(layer)), {}});
    return number;
  }
  // Adds a layer that is on a GPU alone. Its number holds for this process.
  int64_t add_placed(std::shared_ptr<const DeviceOperator> device) {
    const std::lock_guard lock(mutex_);
    int64_t number = 0;
    do {
      placed_ += kTwins + 1;
      number = placed_ + 1;
    } while (layers_.contains(number));
    layers_.emplace(number, Layer{{}, std::move(device)});
    return number;
  }
  // Gives a layer its weights on a GPU, or takes them away. Does nothing if the layer is gone.
  void place(int64_t handle, std::shared_ptr<const DeviceOperator> device) {
    const std::lock_guard lock(mutex_);
    const auto found = layers_.find(handle);
    if (found != layers_.end()) found->second.device.swap(device);
  }
  void remove(int64_t handle) {
    const std::lock_guard lock(mutex_);
    layers_.erase(handle);
  }
  Layer find(int64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = layers_.find(handle);
    if (found != layers_.end()) return found->second;
    for (int64_t twin = handle & ~kTwins; twin <= (handle | kTwins); ++twin) {
      const auto other = layers_.find(twin);
      if (other != layers_.end()) return other->second;
    }
    throw Error(ErrorCode::usage, "layer " + std::to_string(handle),
                "it is gone, or was never in this process: load the layers first, and keep them");
  }
  template <typename Body>
  void with_pool(const Body& body) {
    Own& own = this->own();
    const std::lock_guard lock(own.mutex);
    if (!own.pool) own.pool = std::make_unique<ThreadPool>(own.threads);
    body(*own.pool);
  }
  // Calls body(run) with the host's threads, or with those of the pool.
  template <typename Body>
  void with_threads(const Body& body) {
    if (host_.usable() && host_threads_.load() && process_ == this_process()) {
      body([this](FunctionRef<void(int, int)> task) { host_.run(task); });
    } else {
      with_pool([&](ThreadPool& pool) {
        body([&pool](FunctionRef<void(int, int)> task) { pool.run(task); });
      });
    }
  }
  void set_host(const HostThreads& host) { host_ = host; }
  void set_threads(int threads) {
    Own& own = this->own();
    const std::lock_guard lock(own.mutex);
    host_threads_.store(threads == 0);
    if (threads == own.threads) return;
    own.threads = threads;
    own.pool.reset();
  }

 private:
  // Layers with the same contents differ in these bits of their numbers, and stand for each other
  // where one of them is gone.
  static constexpr int64_t kTwins = 255;

  // These are threads of ours. Those of the host and of a pool do not exist in the child of a fork,
  // where a lock may be held by a thread that does not exist either: it gets its own.
  struct Own {
    const int process = this_process();
    std::mutex mutex;
    int threads = 0;
    std::unique_ptr<ThreadPool> pool;
  };
  Own& own() {
    Own* found = own_.load();
    if (found->process == this_process()) return *found;
    auto made = std::make_unique<Own>();
    made->threads = found->threads;
    if (own_.compare_exchange_strong(found, made.get())) return *made.release();
    return *found;
  }

  std::mutex mutex_;
  const int process_ = this_process();
  std::atomic<Own*> own_{new Own};
  std::unordered_map<int64_t, Layer> layers_;
  int64_t placed_ = 0;
  HostThreads host_;  // set once, before the first product
  std::atomic<bool> host_threads_{true};
};

// Keeps the experts of this process on GPUs by number.
class PlacedExperts {
 public:
  static PlacedExperts& all() {
    static PlacedExperts* experts = new PlacedExperts;
    return *experts;
  }
  int64_t add(std::shared_ptr<DeviceExperts> experts) {
    const std::lock_guard lock(mutex_);
    experts_.emplace(++last_, std::move(experts));
    return last_;
  }
  void remove(int64_t number) {
    const std::lock_guard lock(mutex_);
    experts_.erase(number);
  }
  std::shared_ptr<DeviceExperts> find(int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = experts_.find(number);
    if (found != experts_.end()) return found->second;
    throw Error(ErrorCode::usage, "experts " + std::to_string(number),
                "they are gone, or were never in this process");
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<DeviceExperts>> experts_;
  int64_t last_ = 0;
};

}  // namespace walsh::python
