// Lets the model write a text. Sensitivity is measured on it where there is no other text, and
// calibration reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/model.h"

namespace walsh {

struct SelfTextOptions {
  int64_t ctx = 512;    // a window has this many tokens
  int64_t windows = 8;  // each starts anew
  int32_t bos = -1;     // each window begins with it; -1 means a random token
  uint64_t seed = 1;
};

// This many windows are evaluated together, each with its own cache.
inline constexpr int64_t kSideBySide = 64;

// Returns the number of steps in which windows that are written together get a token.
inline int64_t self_text_steps(const SelfTextOptions& options) {
  return (options.windows + kSideBySide - 1) / kSideBySide * (options.ctx - 1);
}

// Returns [windows * ctx] tokens that are sampled from the model's distribution at temperature 1.
// They depend only on the model and the seed. Before each position, `progress` is told how many of
// all tokens exist; it may throw to stop.
std::vector<int32_t> write_self_text(const Model& model, const SelfTextOptions& options,
                                     const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace walsh
