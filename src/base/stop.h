// Lets long loops ask whether the caller requested a stop (walsh/stop.h).
#pragma once

#include <atomic>

#include "walsh/stop.h"

namespace walsh {

// The flag of this thread's innermost StopScope, or null. A worker of a ThreadPool has the flag of
// the caller whose task it runs.
const std::atomic<bool>* stop_flag();

// Throws Error(interrupted). Cheap enough for every word of a text or row of a matrix.
[[noreturn]] void throw_stopped();
inline void check_stop(const std::atomic<bool>* flag) {
  if (flag != nullptr && flag->load(std::memory_order_relaxed)) throw_stopped();
}
inline void check_stop() {
  check_stop(stop_flag());
}

// A flag that is never set, for a StopScope around work that is short and whose result must not be
// lost.
inline const std::atomic<bool> kNotStopped = false;

namespace detail {

// Workers of a pool take over the caller's flag, which may be null.
void set_stop_flag(const std::atomic<bool>* flag);

}  // namespace detail
}  // namespace walsh
