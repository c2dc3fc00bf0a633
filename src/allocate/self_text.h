// Text that a model writes itself: what its sensitivity is measured on when no other text is given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/model.h"

namespace walsh {

struct SelfTextOptions {
  int64_t ctx = 512;    // tokens per window
  int64_t windows = 8;  // each from a start of its own
  int32_t bos = -1;     // first token of each; -1: a random one
  uint64_t seed = 1;
};

// [windows * ctx] tokens, drawn from the model's own distribution at temperature 1. The same for
// the same model and seed. Told before each position how many tokens of all there are, `progress`
// may throw to stop.
std::vector<int32_t> write_self_text(const Model& model, const SelfTextOptions& options,
                                     const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace walsh
