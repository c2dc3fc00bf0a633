#include "lost_files.h"

#include <signal.h>

#include <mutex>
#include <optional>

#include "io/fault.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::python {
namespace {

struct sigaction g_previous;  // what the process did before

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0 && replace_lost_pages(info->si_addr)) return;
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler == SIG_DFL || g_previous.sa_handler == SIG_IGN) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // comes when this handler returns
  } else {
    g_previous.sa_handler(signal);
  }
}

}  // namespace

void survive_lost_files() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, nullptr, &g_previous);
    ::sigaction(SIGBUS, &action, nullptr);
  });
}

void throw_if_lost(const std::string& path) {
  const std::optional<std::string> lost = lost_file(one_line(path));
  if (!lost) return;
  throw Error(ErrorCode::io, *lost,
              "cannot be read any more: the file was cut short, or its disk fails");
}

}  // namespace walsh::python
