#include "calls.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "walsh/error.h"

namespace walsh::python {
namespace {

constexpr std::chrono::seconds kPatience{30};  // at the end, for work that does not look at flags

struct Calls {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  std::unordered_set<std::atomic<bool>*> flags;
  std::atomic<bool> ended{false};
  std::thread::id last;  // the thread that ended them, the only one that Python still runs
  int process = this_process();

  bool over() const { return ended && std::this_thread::get_id() != last; }
};

Calls& calls() {
  static Calls* all = new Calls;  // threads may outlive static objects
  return *all;
}

thread_local std::atomic<bool>* current_flag = nullptr;

[[noreturn]] void wait_for_the_end() {
  nanobind::set_leak_warnings(false);  // what this thread holds is never given back
  for (;;)
    std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

void Unlocked::lock() {
  if (calls().over()) wait_for_the_end();
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {  // the unwinding of the thread, which would go on behind this block
    wait_for_the_end();
  }
}

Call::Running::Running() {
  Calls& all = calls();
  if (all.over()) wait_for_the_end();
  const std::lock_guard lock(all.mutex);
  if (all.ended) throw Error(ErrorCode::usage, "walsh", "the interpreter is ending");
  ++all.running;
}

Call::Running::~Running() {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  --all.running;
  all.changed.notify_all();
}

Call::Call() = default;
Call::~Call() = default;

Stoppable::Stoppable(std::atomic<bool>& stop) : stop_(stop), outer_(current_flag) {
  current_flag = &stop;
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  if (all.ended) stop_ = true;
  all.flags.insert(&stop_);
}

Stoppable::~Stoppable() {
  current_flag = outer_;
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  all.flags.erase(&stop_);
  all.changed.notify_all();
}

std::atomic<bool>* Stoppable::current() {
  return current_flag;
}

void end_calls() {
  Calls& all = calls();
  if (all.process != this_process()) return;  // the calls that it knows of ran in the parent
  const Unlocked others;
  std::unique_lock lock(all.mutex);
  all.last = std::this_thread::get_id();
  all.ended = true;
  for (std::atomic<bool>* flag : all.flags)
    *flag = true;
  all.changed.wait_for(lock, kPatience, [&] { return all.running == 0 && all.flags.empty(); });
}

int this_process() {
  return ::getpid();
}

}  // namespace walsh::python
