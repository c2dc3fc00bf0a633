#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "walsh/error.h"

namespace walsh::cli {
namespace {

volatile sig_atomic_t g_requests = 0;

void on_interrupt(int) {
  if (g_requests) _exit(exit_status(ErrorCode::interrupted));
  g_requests = 1;
}

void handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a blocked read returns
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_requests = 0;
  handle(on_interrupt);
}

InterruptGuard::~InterruptGuard() {
  handle(SIG_DFL);
}

bool InterruptGuard::requested() {
  return g_requests != 0;
}

void InterruptGuard::reset() {
  g_requests = 0;
}

void InterruptGuard::check() {
  if (requested()) throw Error(ErrorCode::interrupted, "walsh", "stopped by the user");
}

}  // namespace walsh::cli
