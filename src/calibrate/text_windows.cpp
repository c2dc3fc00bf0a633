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

SessionOptions session_for(const std::vector<std::vector<int32_t>>& windows, const Device& device) {
  SessionOptions session;
  for (const auto& window : windows)
    session.max_positions = std::max(session.max_positions, static_cast<int64_t>(window.size()));
  if (device.cuda)
    session.sequences = std::clamp<int64_t>(kGpuBatchRows / session.max_positions, 1,
                                            static_cast<int64_t>(windows.size()));
  return session;
}

void for_batches(const std::vector<std::vector<int32_t>>& windows, int64_t sequences,
                 int64_t most_rows, const std::function<void(const Batch&)>& body) {
  std::vector<int32_t> tokens;
  std::vector<Run> runs;
  const auto run_batch = [&] {
    if (tokens.empty()) return;
    body({tokens, runs});
    tokens.clear();
    runs.clear();
  };
  for (const auto& window : windows) {
    const auto size = static_cast<int64_t>(window.size());
    const bool full = static_cast<int64_t>(runs.size()) == sequences ||
                      static_cast<int64_t>(tokens.size()) + size > most_rows;
    if (full) run_batch();
    for (int64_t begin = 0; begin < size; begin += most_rows) {
      const int64_t rows = std::min(most_rows, size - begin);
      runs.push_back({static_cast<int64_t>(runs.size()), begin, rows, rows});
      tokens.insert(tokens.end(), window.begin() + begin, window.begin() + begin + rows);
      if (rows < size) run_batch();
    }
  }
  run_batch();
}

}  // namespace walsh
