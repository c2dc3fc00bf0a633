#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "calls.h"
#include "module.h"
#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh::python {
namespace {

constexpr std::chrono::milliseconds kSignalInterval{50};

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::bad_input:
      return "bad_input";
    case ErrorCode::limit:
      return "limit";
    case ErrorCode::io:
      return "io";
    case ErrorCode::interrupted:
      return "interrupted";
  }
  return "internal";
}

// Names of files need not be UTF-8: their other bytes become what os.fsdecode makes of them.
nb::object text_of(const std::string& text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

// Does the work of one call on a thread.
class Worker {
 public:
  explicit Worker(const std::function<void()>& work) : thread_([this, &work] { run(work); }) {}
  ~Worker() { thread_.join(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool wait() {
    std::unique_lock lock(mutex_);
    return finished_.wait_for(lock, kSignalInterval, [this] { return done_; });
  }
  void stop() { stop_ = true; }
  const std::exception_ptr& error() const { return error_; }

 private:
  void run(const std::function<void()>& work) {
    try {
      const Stoppable stoppable(stop_);
      const StopScope scope(stop_);
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    finished_.notify_one();
  }

  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

// Runs `work` and calls look() now and then with the interpreter's lock held, and at last when it
// is done; look() throws a Python error to end the work.
void run_looking(const std::function<void()>& work, const std::function<void()>& look) {
  std::exception_ptr error, wish;
  {
    Call call;
    Worker worker(work);
    for (bool done = false; !done && !wish;) {
      done = worker.wait();
      call.lock();
      try {
        look();
      } catch (...) {  // the work comes to its end first
        wish = std::current_exception();
        worker.stop();
      }
      call.unlock();
    }
    while (!worker.wait()) {
    }
    error = worker.error();
  }
  if (wish) std::rethrow_exception(wish);
  if (error) std::rethrow_exception(error);
}

}  // namespace

void Progress::set(size_t done, size_t count) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  count_ = count;
  changed_ = true;
}

bool Progress::tell() {
  size_t done = 0, count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!changed_ || !wanted()) return true;
    changed_ = false;
    done = done_;
    count = count_;
  }
  const nb::object answer = function_(done, count);
  return !answer.is(nb::bool_(false));
}

void run_interruptible(const std::function<void()>& work) {
  run_looking(work, [] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

void run_interruptible(const std::function<void()>& work, Progress& progress) {
  run_looking(work, [&] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.tell()) throw Error(ErrorCode::interrupted, "progress", "it asked for the end");
  });
}

void register_errors(nb::module_& module) {
  // The class is Python's own (walsh/_error.py); the module keeps it alive.
  module.attr("Error") = nb::module_::import_("walsh._error").attr("Error");
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void* type) {
        try {
          std::rethrow_exception(p);
        } catch (const Error& e) {
          const auto kind = static_cast<PyObject*>(type);
          const nb::object value =
              nb::borrow(kind)(code_name(e.code()), text_of(e.where()), text_of(e.reason()));
          PyErr_SetObject(kind, value.ptr());
        }
      },
      nb::object(module.attr("Error")).ptr());
}

}  // namespace walsh::python
