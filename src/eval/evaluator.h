// Runs one or two models over the windows of a text and measures perplexity and divergence.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "eval/meters.h"
#include "eval/stored_logits.h"
#include "eval/windows.h"
#include "model/model.h"

namespace walsh {

struct Evaluation {
  PerplexityMeter perplexity;                 // it belongs to the model
  std::optional<DivergenceMeter> divergence;  // it exists if there is a reference
  int64_t windows = 0;
};

struct EvalOptions {
  WindowOptions windows;
  int32_t bos = -1;  // it replaces the first token of each window; -1 keeps the text's own
  // This is called after each window with the total number of windows; it may throw to stop.
  std::function<void(const Evaluation&, int64_t)> progress;
};

// Scores `text` in one pass, window by window, with both models in step; memory does not grow with
// the text, because eval/distribution.h approximates percentiles of more than a million tokens. The
// result does not depend on the number of threads. Throws usage if the vocabularies differ or the
// windows do not fit, bad_input if logits are not finite.
Evaluation evaluate(const Model& model, const Model* reference, std::span<const int32_t> text,
                    const EvalOptions& options);

// Scores the text and the windows of a reference that is a file; only the number of windows in
// options.windows counts. Throws usage if the vocabularies differ.
Evaluation evaluate(const Model& model, const StoredLogits& reference, const EvalOptions& options);

}  // namespace walsh
