// Runs tasks on a fixed set of threads. Forking and joining are cheap enough to do several times
// per layer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/stop.h"

namespace walsh {

class ThreadPool {
 public:
  // Starts `threads` threads, of which the caller is one; 0 means one per available core. Throws
  // limit if the system refuses to start this many.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(thread, size()) once on every thread, where thread 0 is the caller. Returns when all
  // are done. The first exception is rethrown. It is not reentrant and has one caller at a time.
  // Stop requests (base/stop.h) are checked here and between the indices of for_each.
  void run(FunctionRef<void(int, int)> task);

  // Splits [0, count) into one contiguous range per thread, cut at multiples of `grain`, and calls
  // body(begin, end) for those that are not empty. The split depends only on count, grain and
  // size().
  template <typename Body>
  void for_ranges(int64_t count, int64_t grain, Body&& body) {
    run([&](int thread, int threads) {
      const auto [begin, end] = range_of(count, grain, thread, threads);
      if (begin < end) body(begin, end);
    });
  }

  // Calls body(i), or body(i, thread), for every i in [0, count). Each i goes to the next thread
  // that is free.
  template <typename Body>
  void for_each(int64_t count, Body&& body) {
    std::atomic<int64_t> next{0};
    const std::atomic<bool>* stop = stop_flag();
    run([&](int thread, int) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
        check_stop(stop);
        if constexpr (std::is_invocable_v<Body, int64_t, int>) {
          body(i, thread);
        } else {
          body(i);
        }
      }
    });
  }

  static std::pair<int64_t, int64_t> range_of(int64_t count, int64_t grain, int thread,
                                              int threads) {
    const int64_t units = (count + grain - 1) / grain;
    const int64_t begin = units * thread / threads * grain;
    const int64_t end = units * (thread + 1) / threads * grain;
    return {std::min(begin, count), std::min(end, count)};
  }

 private:
  void stop();
  void work(int thread);
  void run_one(int thread, FunctionRef<void(int, int)> task);

  std::vector<std::thread> workers_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
  const FunctionRef<void(int, int)>* task_ = nullptr;
  const std::atomic<bool>* stop_flag_ = nullptr;  // The caller's scope has it.
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// Returns how many cores this process may use, according to its affinity mask and its control
// groups.
int available_cores();

}  // namespace walsh
