// Selects the parts of a calibration text that a model reads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arch/config.h"
#include "model/executor.h"

namespace walsh {

// A calibration takes this many tokens by default.
inline constexpr int64_t kCalibrationTokens = 98304;
// This many tokens are evaluated as one sequence.
inline constexpr int64_t kCalibrationWindow = 512;

// Returns whole windows of `window` tokens, spread evenly over the text, with their first token
// replaced by `bos` unless it is negative. `tokens` says how many to take, rounded down to whole
// windows, of which there is at least one; 0 means kCalibrationTokens, or fewer if the text is
// shorter. Throws usage if the text has fewer tokens than asked for.
std::vector<std::vector<int32_t>> calibration_windows(std::span<const int32_t> text, int64_t tokens,
                                                      int64_t window, int32_t bos);

// Throws usage for no tokens, for tokens outside the vocabulary and for windows that exceed the
// model's positions.
void check_windows(const ModelConfig& config, const std::vector<std::vector<int32_t>>& windows);

// Windows that a GPU runs side by side have this many tokens together.
inline constexpr int64_t kGpuBatchRows = 4096;

// Returns the session that runs windows on a device: it has the longest one's positions, and as
// many sequences as the device runs at once.
SessionOptions session_for(const std::vector<std::vector<int32_t>>& windows, const Device& device);

// Calls body(batch) until all tokens of the windows had their turn, in their order. A window is a
// sequence; whole ones come together as far as there are sequences and rows for them, and one that
// has more than `most_rows` tokens comes alone, in pieces. Logits of all rows are wanted, which
// keeps the last layer from leaving some out.
void for_batches(const std::vector<std::vector<int32_t>>& windows, int64_t sequences,
                 int64_t most_rows, const std::function<void(const Batch&)>& body);

}  // namespace walsh
