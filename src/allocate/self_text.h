// Lets the model write a text: where there is no other text, sensitivity is measured on it, and
// calibration reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/model.h"

namespace walsh {

struct SelfTextOptions {
  int64_t ctx = 512;    // tokens per window
  int64_t windows = 8;  // each starts anew
  int32_t bos = -1;     // first token of each window; -1: a random one
  uint64_t seed = 1;
};

inline constexpr int64_t kSideBySide = 64;  // windows evaluated together, each with its own cache

// Returns the number of steps in which windows that are written together get a token.
inline int64_t self_text_steps(const SelfTextOptions& options) {
  return (options.windows + kSideBySide - 1) / kSideBySide * (options.ctx - 1);
}

// [windows * ctx] tokens, sampled from the model's distribution at temperature 1. Deterministic in
// model and seed. `progress` is told before each position how many of all tokens exist and may
// throw to stop.
std::vector<int32_t> write_self_text(const Model& model, const SelfTextOptions& options,
                                     const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace walsh
