// Helps with terminals: it detects them, draws a progress bar and formats readable sizes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace walsh::cli {

bool is_terminal(int fd);

// Formats bytes as "12.3 MiB".
std::string human_bytes(uint64_t bytes);
// Parses sizes such as "3.5GiB", "3.5 gib" or "3758096384"; "GB" and "G" are powers of 1000. Throws
// usage naming the flag for anything else, for less than one byte and for 2^60 and more.
uint64_t parse_bytes(std::string_view text, const char* flag);
// Formats a time as "48 s", "3 min" or "2.5 h".
std::string human_seconds(double seconds);
// Formats a count as "1.10 B" or "12.8 M".
std::string human_count(uint64_t count);

// Draws a bar on standard error, in place. Without a terminal it draws nothing.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled) : enabled_(enabled) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Shows `done` of `total` (> 0) units and a short note, at most ten times a second.
  void update(uint64_t done, uint64_t total, const std::string& note);
  void clear();

 private:
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace walsh::cli
