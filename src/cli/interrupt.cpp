#include "cli/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/stop.h"
#include "io/fault.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

// Programs such as timeout(1) signal a command and then its process group; signals within this time
// count as one.
constexpr int64_t kOneRequest = 200;  // this is in ms
constexpr int kRequests[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU};

std::atomic<bool> g_requested = false;
std::atomic<bool> g_end = false;  // a signal other than SIGINT has come
// The first request came at this time; 0 means that none has come.
std::atomic<int64_t> g_first = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_interrupt(int signal) {
  if (signal != SIGINT) g_end = true;
  const int64_t now = milliseconds();
  const bool again = g_requested.exchange(true);
  if (!again) g_first = now;
  // A second signal may be handled on another thread before the first one's time is stored.
  const int64_t first = g_first;
  if (!again || first == 0 || now - first <= kOneRequest) return;
  remove_temporary_files();
  _exit(exit_status(ErrorCode::interrupted));
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {}, before = {};
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN && signal != SIGINT) return;  // nohup asks for this
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // without SA_RESTART a blocked read returns
}

}  // namespace

InterruptGuard::InterruptGuard() : scope_(g_requested) {
  g_requested = g_end = false;
  g_first = 0;
  for (const int signal : kRequests)
    handle(signal, on_interrupt);
}

// After a request the program is about to end; its output must not be lost.
InterruptGuard::~InterruptGuard() {
  if (requested()) return;
  for (const int signal : kRequests)
    handle(signal, SIG_DFL);
}

bool InterruptGuard::requested() {
  return g_requested;
}

void InterruptGuard::reset() {
  g_first = 0;
  g_requested = false;
  if (g_end) g_requested = true;
}

void InterruptGuard::check() {
  check_stop(&g_requested);
}

}  // namespace walsh::cli
