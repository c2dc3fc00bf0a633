// Formats the results of `walsh eval`: progress lines, the final text, JSON.
#pragma once

#include <cstdint>
#include <string>

#include "cache/cache_type.h"
#include "eval/evaluator.h"

namespace walsh::cli {

struct EvalSubject {
  std::string model, reference, text, type, reference_type, rule;
  double bpw = 0;      // of the linear layers
  uint64_t bytes = 0;  // of all tensors
  int64_t ctx = 0;
  CacheTypes cache = {};
  double seconds = 0;
};

// Returns the heading of the progress lines and one line, printed after each window.
std::string running_heading(bool with_reference);
std::string running_line(const Evaluation& result);

// Returns the final block: perplexity, and the statistics of the divergence if there is a
// reference.
std::string eval_text(const Evaluation& result, const EvalSubject& subject);

// Returns one JSON object. Probabilities (top1, rms_dp, dp) are fractions, logarithms natural.
std::string eval_json(const Evaluation& result, const EvalSubject& subject);

}  // namespace walsh::cli
