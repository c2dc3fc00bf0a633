// Selects the parts of a calibration text that a model reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/config.h"

namespace walsh {

inline constexpr int64_t kCalibrationTokens = 98304;  // default
inline constexpr int64_t kCalibrationWindow = 512;    // tokens evaluated as one sequence

// Whole windows of `window` tokens, spread evenly over the text, with their first token replaced by
// `bos` unless it is negative. `tokens` is how many to take (rounded down to whole windows, at
// least one); 0: kCalibrationTokens, or fewer if the text is shorter. Throws usage if the text has
// fewer than asked for.
std::vector<std::vector<int32_t>> calibration_windows(std::span<const int32_t> text, int64_t tokens,
                                                      int64_t window, int32_t bos);

// Throws usage for no tokens, for tokens outside the vocabulary and for windows that exceed the
// model's positions.
void check_windows(const ModelConfig& config, const std::vector<std::vector<int32_t>>& windows);

}  // namespace walsh
