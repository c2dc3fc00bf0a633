// Ctrl-C: the first one asks the running work to stop, the second one ends the program.
#pragma once

namespace walsh::cli {

// While it lives, SIGINT sets a flag; a second SIGINT, unless it comes within 200 ms, exits with
// status 130 at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
  static void reset();  // forgets an earlier request
  // Throws Error(interrupted) if the user asked to stop.
  static void check();
};

}  // namespace walsh::cli
