// Reads lines of standard input.
#pragma once

#include <optional>
#include <string>

namespace walsh::cli {

class LineReader {
 public:
  explicit LineReader(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns the next line without its end, or nothing at the end of the input. Throws limit for a
  // line that is too long, which is skipped, interrupted for a stop request, and io if reading
  // fails.
  std::optional<std::string> next();

 private:
  bool fill();  // it returns false at the end of the input

  size_t max_bytes_;
  std::string ahead_;  // this was read, but not returned yet
  bool ended_ = false;
};

}  // namespace walsh::cli
