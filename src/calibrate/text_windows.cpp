#include "calibrate/text_windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/spelling.h"
#include "walsh/error.h"

namespace walsh {

std::vector<std::vector<int32_t>> calibration_windows(std::span<const int32_t> text, int64_t tokens,
                                                      int64_t window, int32_t bos) {
  const auto size = static_cast<int64_t>(text.size());
  const int64_t wanted = tokens > 0 ? tokens : std::min(size, kCalibrationTokens);
  const int64_t needed = std::max(wanted, window);
  if (size < needed) {
    throw Error(ErrorCode::usage, "--calibrate",
                fmt::format("the text has {}, but {}{}", counted(size, "token"), needed,
                            tokens > window ? " are needed for --calibrate-tokens"
                                            : " are needed for one window"));
  }
  const int64_t count = std::max<int64_t>(1, wanted / window);
  std::vector<std::vector<int32_t>> windows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = count > 1 ? (size - window) * i / (count - 1) : 0;
    const auto part = text.subspan(static_cast<size_t>(begin), static_cast<size_t>(window));
    windows.emplace_back(part.begin(), part.end());
    if (bos >= 0) windows.back().front() = bos;
  }
  return windows;
}

void check_windows(const ModelConfig& config, const std::vector<std::vector<int32_t>>& windows) {
  int64_t longest = 0;
  for (const auto& window : windows) {
    longest = std::max(longest, static_cast<int64_t>(window.size()));
    for (const int32_t token : window) {
      if (token >= 0 && token < config.vocab) continue;
      throw Error(ErrorCode::usage, "text",
                  fmt::format("token {} is outside the vocabulary of {}", token, config.vocab));
    }
  }
  if (longest == 0) throw Error(ErrorCode::usage, "text", "it has no token");
  if (longest > config.max_positions) {
    throw Error(ErrorCode::usage, "text",
                fmt::format("windows of {} tokens, the model has {} positions", longest,
                            config.max_positions));
  }
}

}  // namespace walsh
