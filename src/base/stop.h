// Lets long loops ask whether the caller requested a stop (walsh/stop.h).
#pragma once

#include <atomic>

#include "walsh/stop.h"

namespace walsh {

// Returns the flag of this thread's innermost StopScope, or null. A worker of a ThreadPool has the
// flag of the caller whose task it runs.
const std::atomic<bool>* stop_flag();

// throw_stopped() throws Error(interrupted). check_stop() does so if a stop was requested, and is
// cheap enough to be called for every word of a text or matrix row.
[[noreturn]] void throw_stopped();
inline void check_stop(const std::atomic<bool>* flag) {
  if (flag != nullptr && flag->load(std::memory_order_relaxed)) throw_stopped();
}
inline void check_stop() {
  check_stop(stop_flag());
}

// This flag is never set. A StopScope takes it around work that is short and whose result must not
// be lost.
inline const std::atomic<bool> kNotStopped = false;

namespace detail {

// Sets this thread's flag. Workers of a pool take over the caller's flag, which may be null.
void set_stop_flag(const std::atomic<bool>* flag);

}  // namespace detail
}  // namespace walsh
