// Wraps file descriptors: they close at the end of a scope, are never 0 to 2, and are waited for
// without missing a stop.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace walsh {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  void reset();

 private:
  int fd_ = -1;
};

// Calls open(2) with O_CLOEXEC. The descriptor is at least 3 even where the process was started
// with 0 to 2 closed, because a message that somebody prints must not end up in the file. Returns
// -1 with errno set if the system refuses.
int open_descriptor(const std::string& path, int flags, mode_t mode = 0);

// Waits until read(2) would not block; throws interrupted when the caller is asked to stop
// (base/stop.h), io if the descriptor cannot be waited for.
void wait_readable(int fd, const std::string& where);

}  // namespace walsh
