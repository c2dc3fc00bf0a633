#include "base/thread_pool.h"

#include <sched.h>

#include <string>
#include <system_error>

#include "base/cgroup.h"
#include "base/physical_cores.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// A worker that spins this often, about 50 us, bridges the serial part between two operations of a
// layer. It then sleeps, so that an idle pool costs nothing.
constexpr int kSpins = 2000;
// Spinning threads yield after this many spins: with more threads than free cores, the thread that
// is waited for may itself wait for this core.
constexpr int kSpinsPerYield = 64;

void spin(int spins) {
  if (spins % kSpinsPerYield == kSpinsPerYield - 1) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int available_cores() {
  const int cores = std::max(1, physical_cores(allowed_cpus()));
  const int granted = cgroup_cores();
  return granted > 0 ? std::min(cores, granted) : cores;
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = available_cores();
  workers_.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int t = 1; t < threads; ++t)
      workers_.emplace_back([this, t] { work(t); });
  } catch (const std::system_error& e) {
    stop();
    throw Error(ErrorCode::limit, "threads",
                "cannot start " + std::to_string(threads) + " threads: " + e.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& w : workers_)
    w.join();
}

void ThreadPool::run_one(int thread, FunctionRef<void(int, int)> task) {
  try {
    task(thread, size());
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::run(FunctionRef<void(int, int)> task) {
  check_stop();
  if (workers_.empty()) {
    task(0, 1);
    return;
  }
  task_ = &task;
  stop_flag_ = stop_flag();
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  run_one(0, task);
  for (int spins = 0, left; (left = pending_.load(std::memory_order_acquire)) != 0; ++spins) {
    if (spins < kSpins) {
      spin(spins);
    } else {
      pending_.wait(left, std::memory_order_acquire);
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kSpins) {
        spin(spins);
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    detail::set_stop_flag(stop_flag_);
    run_one(thread, *task_);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_all();
  }
}

}  // namespace walsh
