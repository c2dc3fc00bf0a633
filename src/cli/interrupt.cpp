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
constexpr int kRequests[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<bool> g_requested = false, g_output_closed = false;
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
  g_last = now;  // first: the second signal may come to another thread
  if (g_requested.exchange(true)) _exit(exit_status(ErrorCode::interrupted));
}

// What reads the output has gone: nothing more is written, and what was begun is cleaned up.
void on_broken_pipe(int) {
  g_output_closed = true;
  g_requested = true;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {}, before = {};
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN && signal != SIGINT) return;  // as nohup wants it
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // no SA_RESTART: a blocked read returns
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_requested = false;
  for (const int signal : kRequests)
    handle(signal, on_interrupt);
  handle(SIGPIPE, on_broken_pipe);
}

// After a request the program is about to end, and what it has printed must not be lost.
InterruptGuard::~InterruptGuard() {
  if (requested()) return;
  for (const int signal : kRequests)
    handle(signal, SIG_DFL);
  handle(SIGPIPE, SIG_DFL);
}

bool InterruptGuard::requested() {
  return g_requested;
}

bool InterruptGuard::output_closed() {
  return g_output_closed;
}

void InterruptGuard::reset() {
  g_requested = false;
}

void InterruptGuard::check() {
  if (requested()) throw Error(ErrorCode::interrupted, "walsh", "stopped by the user");
}

}  // namespace walsh::cli
