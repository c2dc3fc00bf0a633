// Ctrl-C and other requests to end: the first one asks the running work to stop, so that nothing
// half-written stays, the second one ends the program.
#pragma once

namespace walsh::cli {

// As a shell says of a program that SIGPIPE has ended.
inline constexpr int kOutputClosedStatus = 141;

// While it lives, SIGINT, SIGTERM, SIGHUP and SIGPIPE set a flag; a second one, unless it is
// SIGPIPE or comes within 200 ms, exits with status 130 at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
  static bool output_closed();  // what read the output has gone
  static void reset();          // forgets an earlier request
  // Throws Error(interrupted) if the user asked to stop.
  static void check();
};

}  // namespace walsh::cli
