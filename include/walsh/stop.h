// A StopScope lets a signal handler, another thread or a user interface stop long operations.
#pragma once

#include <atomic>

namespace walsh {

// While a scope exists, all functions of walsh that its thread calls check `flag` and end with
// Error(interrupted) soon after it has become true, well within a second, leaving nothing
// half-written. A text that is being generated ends instead, as if its callback had returned false.
// Scopes nest, and the innermost one counts; each ends on the thread that made it. `flag` must
// outlive it.
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
