// What long loops ask: has the caller of this thread's work requested its end (walsh/stop.h)?
#pragma once

#include <atomic>

#include "walsh/stop.h"

namespace walsh {

// The flag of this thread's innermost StopScope; null without one. On a worker of a ThreadPool that
// of the caller whose task it runs.
const std::atomic<bool>* stop_flag();

// Throws Error(interrupted). Cheap enough for every word of a text or row of a matrix.
[[noreturn]] void throw_stopped();
inline void check_stop(const std::atomic<bool>* flag) {
  if (flag != nullptr && flag->load(std::memory_order_relaxed)) throw_stopped();
}
inline void check_stop() {
  check_stop(stop_flag());
}

// For a StopScope around what is too short to be stopped and whose result must not be lost.
inline const std::atomic<bool> kNotStopped = false;

namespace detail {

// For the workers of a pool: takes over a flag, which may be null.
void set_stop_flag(const std::atomic<bool>* flag);

}  // namespace detail
}  // namespace walsh
