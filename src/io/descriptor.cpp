#include "io/descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/stop.h"
#include "io/system_error.h"

namespace walsh {
namespace {

constexpr int kFirstOwn = STDERR_FILENO + 1;

// The stop signal may arrive just before poll(2) or on another thread, in which case it would not
// wake this one.
constexpr int kLookForStop = 100;  // Waiting looks for a request to stop as often as this, in ms.

}  // namespace

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int open_descriptor(const std::string& path, int flags, mode_t mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0 || fd >= kFirstOwn) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstOwn);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

void wait_readable(int fd, const std::string& where) {
  for (;;) {
    check_stop();
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, kLookForStop);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw_system_error(where, "wait for", errno);
  }
}

}  // namespace walsh
