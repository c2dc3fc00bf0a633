#include "cli/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "cli/terminal.h"
#include "io/fault.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

std::atomic_flag g_ending = ATOMIC_FLAG_INIT;
bool g_terminal = false;  // messages go to a terminal

// Builds a line without allocating, as signal handlers need.
class FixedLine {
 public:
  void add(const char* text) {
    const size_t bytes = std::min(std::strlen(text), sizeof text_ - used_);
    std::memcpy(text_ + used_, text, bytes);
    used_ += bytes;
  }
  void write() const { static_cast<void>(!::write(STDERR_FILENO, text_, used_)); }

 private:
  char text_[8192];
  size_t used_ = 0;
};

// Removes temporary files and ends the process with one line, without allocating.
[[noreturn]] void end_process(ErrorCode code, const char* where, const char* reason) {
  while (g_ending.test_and_set())  // another thread is ending the process
    ::pause();
  remove_temporary_files();
  FixedLine line;
  if (g_terminal) line.add("\r\033[K");
  line.add("walsh: error: ");
  line.add(where);
  line.add(reason);
  line.write();
  ::_exit(exit_status(code));
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const char* path = info->si_code > 0 ? mapped_path(info->si_addr) : nullptr;
  if (path == nullptr) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // it takes effect when this handler returns
    return;
  }
  end_process(ErrorCode::io, path,
              ": cannot be read any more: the file was cut short, or its disk fails\n");
}

// Memory may also run out where nothing can be thrown, because freeing JSON values takes some.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    end_process(ErrorCode::limit, "memory", ": not enough memory\n");
  } catch (...) {
  }
  std::abort();
}

}  // namespace

void open_standard_descriptors() {
  // 0 and 1 are opened for the opposite direction, so that using them fails with EBADF.
  const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free descriptor is this one. Without /dev, the root folder takes its place.
    if (::open("/dev/null", modes[fd]) < 0) static_cast<void>(::open("/", O_RDONLY | O_DIRECTORY));
  }
}

void handle_process_ends() {
  std::set_terminate(on_terminate);
  g_terminal = is_terminal(STDERR_FILENO);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace walsh::cli
