// Ending long work from outside: from a signal handler, another thread, a button.
#pragma once

#include <atomic>

namespace walsh {

// While it lives, whatever the thread that made it calls in walsh looks at `flag` now and then and
// ends with Error(interrupted) soon after it has become true, well within a second, with nothing
// half-written. A text that is being generated ends there instead, as if its callback had said so.
// Scopes nest, the innermost counts; each ends on the thread that made it. `flag` outlives it.
class StopScope {
 public:
  explicit StopScope(const std::atomic<bool>& flag);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

}  // namespace walsh
