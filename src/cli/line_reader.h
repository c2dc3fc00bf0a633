// Lines of standard input, typed or from a pipe.
#pragma once

#include <optional>
#include <string>

namespace walsh::cli {

class LineReader {
 public:
  explicit LineReader(size_t max_bytes) : max_bytes_(max_bytes) {}

  // The next line without its end; nothing at the end of the input. Throws limit for a longer line,
  // which is then behind, interrupted when asked to stop, io if it cannot be read.
  std::optional<std::string> next();

 private:
  bool fill();  // false at the end of the input

  size_t max_bytes_;
  std::string ahead_;  // read, and not yet part of a line
  bool ended_ = false;
};

}  // namespace walsh::cli
