#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

#include "cli/output.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};

size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

}  // namespace

bool is_terminal(int fd) {
  return isatty(fd) == 1;
}

std::string human_bytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit)
    value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

uint64_t parse_bytes(std::string_view text, const char* flag) {
  constexpr double kTooMany = 0x1p60;
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(end - text.data())))
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::string_view prefixes = "kmgt";
  const size_t power = unit.empty() ? prefixes.npos : prefixes.find(unit[0]);
  bool known = unit.empty() || unit == "b";
  if (power != prefixes.npos) {
    const std::string_view rest = std::string_view(unit).substr(1);
    const bool binary = rest.starts_with('i');
    known = rest.empty() || rest == "b" || rest == "i" || rest == "ib";
    value *= std::pow(binary ? 1024 : 1000, static_cast<double>(power + 1));
  }
  if (failed == std::errc() && known && value >= 1 && value < kTooMany)
    return static_cast<uint64_t>(value);
  throw Error(ErrorCode::usage, flag,
              fmt::format("'{}' is not a size; write it like 3.5GiB or 800MB", text));
}

std::string human_seconds(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string human_count(uint64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  return fmt::format("{:.2f} K", value / 1e3);
}

void ProgressBar::update(uint64_t done, uint64_t total, const std::string& note) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || (drawn_ && done < total && now - last_ < kRedraw)) return;
  last_ = now;
  const size_t columns = terminal_columns();
  constexpr size_t kBar = 24;
  const size_t filled = static_cast<size_t>(std::min(done, total) * kBar / std::max(total, done));
  std::string line =
      fmt::format("[{}{}] {:3}% {}", std::string(filled, '#'), std::string(kBar - filled, ' '),
                  done * 100 / total, printable(note, columns));
  line.resize(std::min(line.size(), columns - 1));
  redraw_line(line);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  redraw_line("");
  drawn_ = false;
}

}  // namespace walsh::cli
