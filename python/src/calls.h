// Handles calls that run without the interpreter's lock, and what becomes of them when it ends.
//
// While the interpreter ends it unwinds every other thread that asks for its lock, which
// destructors in C++ do not survive: the process would abort. Such threads wait here for the end of
// the process, as they do in the interpreter itself since Python 3.14.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>

namespace walsh::python {

// In its scope other threads of Python go on. It is made with the interpreter's lock held.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

  // Takes the interpreter's lock for a while, or waits for the end of the process.
  void lock();
  void unlock() { state_ = PyEval_SaveThread(); }

 private:
  PyThreadState* state_;
};

// Does the same around work of the library: the interpreter waits for it before it ends. Afterwards
// it throws usage.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void lock() { unlocked_.lock(); }
  void unlock() { unlocked_.unlock(); }

 private:
  struct Running {
    Running();
    ~Running();
  };
  Unlocked unlocked_;
  Running running_;  // last: over before the lock is taken
};

// While it lives, the end of the interpreter sets `stop` and waits for the end of its scope.
class Stoppable {
 public:
  explicit Stoppable(std::atomic<bool>& stop);
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

  // Returns the flag of the innermost one of this thread; null without one.
  static std::atomic<bool>* current();

 private:
  std::atomic<bool>& stop_;
  std::atomic<bool>* outer_;
};

// Ends what runs and waits for it; is called when the interpreter begins to end.
void end_calls();

// Returns a number of this process. The child of a fork has copies of the objects of its parent,
// but not the threads that they work with.
int this_process();

}  // namespace walsh::python
