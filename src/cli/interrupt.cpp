#include "cli/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "walsh/error.h"

namespace walsh::cli {
namespace {

// Whoever ends a command may signal it and its process group: one request (timeout(1) does so).
constexpr int64_t kOneRequest = 200;  // ms

std::atomic<bool> g_requested = false;
std::atomic<int64_t> g_last = 0;  // when the last request came
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_interrupt(int) {
  const int64_t now = milliseconds();
  if (g_last != 0 && now - g_last <= kOneRequest) return;
  if (g_requested) _exit(exit_status(ErrorCode::interrupted));
  g_requested = true;
  g_last = now;
}

void handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a blocked read returns
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_requested = false;
  handle(on_interrupt);
}

// After a request the program is about to end, and what it has printed must not be lost.
InterruptGuard::~InterruptGuard() {
  if (!requested()) handle(SIG_DFL);
}

bool InterruptGuard::requested() {
  return g_requested;
}

void InterruptGuard::reset() {
  g_requested = false;
}

void InterruptGuard::check() {
  if (requested()) throw Error(ErrorCode::interrupted, "walsh", "stopped by the user");
}

}  // namespace walsh::cli
