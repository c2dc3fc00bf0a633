#include "cli/line_reader.h"

#include <unistd.h>

#include <cerrno>

#include "io/descriptor.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr const char* kWhere = "standard input";

}  // namespace

bool LineReader::fill() {
  char piece[1 << 16];
  while (!ended_) {
    wait_readable(STDIN_FILENO, kWhere);
    const ssize_t got = ::read(STDIN_FILENO, piece, sizeof piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) throw_system_error(kWhere, "read", errno);
    ended_ = got == 0;
    ahead_.append(piece, static_cast<size_t>(got));
    return got > 0;
  }
  return false;
}

std::optional<std::string> LineReader::next() {
  size_t searched = 0;
  bool too_long = false;
  for (;;) {
    const size_t end = ahead_.find('\n', searched);
    if (end != ahead_.npos || (ended_ && (too_long || !ahead_.empty()))) {
      std::string line = ahead_.substr(0, end);
      ahead_.erase(0, end == ahead_.npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      if (!too_long && line.size() <= max_bytes_) return line;
      throw Error(ErrorCode::limit, kWhere,
                  "a line has more than " + std::to_string(max_bytes_) + " bytes");
    }
    if (ended_) return std::nullopt;
    searched = ahead_.size();
    if (searched > max_bytes_) {
      too_long = true;
      ahead_.clear();
      searched = 0;
    }
    fill();
  }
}

}  // namespace walsh::cli
