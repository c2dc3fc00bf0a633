// Handles Ctrl-C and other requests to end: the first one asks the running work to stop, leaving
// nothing half-written; the second one ends the program.
#pragma once

#include "walsh/stop.h"

namespace walsh::cli {

// While a guard exists, SIGINT, SIGTERM, SIGHUP and SIGXCPU set a flag that everything this thread
// calls checks (walsh/stop.h). Another signal more than 200 ms after the first one ends the process
// at once, with status 130.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
  // Forgets a SIGINT, which may have ended only a part of the work; other signals end the program.
  static void reset();
  // Throws Error(interrupted) if the user asked to stop.
  static void check();

 private:
  StopScope scope_;
};

}  // namespace walsh::cli
