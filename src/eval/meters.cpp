#include "eval/meters.h"

#include <cmath>

namespace walsh {

void MeanMeter::add(double x) {
  ++count_;
  const double delta = x - mean_;
  mean_ += delta / static_cast<double>(count_);
  squares_ += delta * (x - mean_);
}

double MeanMeter::variance() const {
  return count_ > 1 ? squares_ / static_cast<double>(count_ - 1) : 0.0;
}

Estimate MeanMeter::mean() const {
  if (count_ == 0) return {};
  return {mean_, std::sqrt(variance() / static_cast<double>(count_))};
}

Estimate PerplexityMeter::perplexity() const {
  const Estimate nll = mean_nll();
  const double ppl = std::exp(nll.value);
  return {ppl, ppl * nll.error};
}

void DivergenceMeter::add(const TokenScore& score) {
  model_.add(score.nll);
  reference_.add(score.nll_reference);
  difference_.add(score.nll - score.nll_reference);
  kld_mean_.add(score.kld);
  dp_mean_.add(score.dp);
  dp_square_.add(score.dp * score.dp);
  agreement_.add(score.same_top ? 1.0 : 0.0);
  kld_.add(score.kld);
  dp_.add(score.dp);
}

double DivergenceMeter::correlation() const {
  // This uses var(a - b) = var(a) + var(b) - 2 cov(a, b).
  const double a = model_.variance(), b = reference_.variance();
  if (a <= 0 || b <= 0) return 0;
  return (a + b - difference_.variance()) / (2 * std::sqrt(a * b));
}

Estimate DivergenceMeter::rms_dp() const {
  const Estimate square = dp_square_.mean();
  const double rms = std::sqrt(square.value);
  return {rms, rms > 0 ? square.error / (2 * rms) : 0.0};
}

Estimate DivergenceMeter::same_top() const {
  return agreement_.mean();
}

}  // namespace walsh
