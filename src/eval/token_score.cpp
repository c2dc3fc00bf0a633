#include "eval/token_score.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "walsh/error.h"

namespace walsh {
namespace {

// Returns the number to subtract from logits to get log-probabilities. Throws if it is not finite.
double checked_normalizer(std::span<const float> logits, int32_t target) {
  if (target < 0 || static_cast<size_t>(target) >= logits.size()) {
    throw Error(ErrorCode::internal, "evaluation",
                "token " + std::to_string(target) + " is outside a vocabulary of " +
                    std::to_string(logits.size()));
  }
  const double normalizer = log_sum_exp(logits);
  if (!std::isfinite(normalizer)) {
    throw Error(ErrorCode::bad_input, "evaluation",
                "the model computes logits that are not finite numbers");
  }
  return normalizer;
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  double top = -INFINITY;
  for (const float x : logits)
    top = std::max(top, static_cast<double>(x));
  double sum = 0;
  for (const float x : logits)
    sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

double token_nll(std::span<const float> logits, int32_t target) {
  const double normalizer = checked_normalizer(logits, target);
  return normalizer - static_cast<double>(logits[static_cast<size_t>(target)]);
}

TokenScore compare_token(std::span<const float> reference, std::span<const float> logits,
                         int32_t target) {
  if (reference.size() != logits.size()) {
    throw Error(ErrorCode::usage, "--reference",
                "its vocabulary has " + std::to_string(reference.size()) + " tokens, the model's " +
                    std::to_string(logits.size()));
  }
  const double norm_p = checked_normalizer(reference, target);
  const double norm_q = checked_normalizer(logits, target);
  TokenScore score;
  size_t top_p = 0, top_q = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - norm_p;
    const double log_q = static_cast<double>(logits[i]) - norm_q;
    const double p = std::exp(log_p);
    if (p > 0) score.kld += p * (log_p - log_q);
    if (reference[i] > reference[top_p]) top_p = i;
    if (logits[i] > logits[top_q]) top_q = i;
  }
  const size_t t = static_cast<size_t>(target);
  score.nll_reference = norm_p - static_cast<double>(reference[t]);
  score.nll = norm_q - static_cast<double>(logits[t]);
  score.dp = std::exp(-score.nll) - std::exp(-score.nll_reference);
  score.same_top = top_p == top_q;
  return score;
}

}  // namespace walsh
