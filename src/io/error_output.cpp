#include "io/error_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <mutex>

namespace walsh {
namespace {

std::timed_mutex g_writing;

// Writes the next piece. A pipe that is ready takes up to PIPE_BUF bytes without waiting.
bool write_piece(std::string_view& text, std::chrono::milliseconds patience) {
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  const auto most = static_cast<std::chrono::milliseconds::rep>(INT_MAX);
  const int ready = ::poll(&out, 1, static_cast<int>(std::min(patience.count(), most)));
  if (ready < 0 && errno == EINTR) return true;
  if (ready <= 0) return false;
  const ssize_t written =
      ::write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
  if (written < 0) return errno == EINTR || errno == EAGAIN;
  text.remove_prefix(static_cast<size_t>(written));
  return written > 0;
}

}  // namespace

bool write_error_output(std::string_view text, std::chrono::milliseconds patience) {
  const std::unique_lock lock(g_writing, patience);
  if (!lock.owns_lock()) return false;
  while (!text.empty())
    if (!write_piece(text, patience)) return false;
  return true;
}

}  // namespace walsh
