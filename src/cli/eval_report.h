// Formats the results of `walsh eval` as progress lines, as the final text and as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "cache/cache_type.h"
#include "eval/evaluator.h"

namespace walsh::cli {

struct EvalSubject {
  std::string model, reference, text, type, reference_type, rule;
  double bpw = 0;      // it counts the linear layers
  uint64_t bytes = 0;  // all tensors take this many bytes
  int64_t ctx = 0;
  CacheTypes cache = {};
  double seconds = 0;
};

// The first returns the heading of the progress lines, the second one line, which is printed after
// each window.
std::string running_heading(bool with_reference);
std::string running_line(const Evaluation& result);

// Returns the final block, which has the perplexity and, if there is a reference, the statistics of
// the divergence.
std::string eval_text(const Evaluation& result, const EvalSubject& subject);

// Returns one JSON object. Probabilities (top1, rms_dp, dp) are fractions, logarithms natural.
std::string eval_json(const Evaluation& result, const EvalSubject& subject);

}  // namespace walsh::cli
