#include "eval/meters.h"

#include <algorithm>
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

double percentile(std::span<const double> sorted, double percent) {
  const double rank = percent / 100.0 * static_cast<double>(sorted.size() - 1);
  const size_t low = std::min(static_cast<size_t>(rank), sorted.size() - 1);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  const double weight = rank - static_cast<double>(low);
  return sorted[low] * (1 - weight) + sorted[high] * weight;
}

void DivergenceMeter::add(const TokenScore& score) {
  model_.add(score.nll);
  reference_.add(score.nll_reference);
  difference_.add(score.nll - score.nll_reference);
  kld_mean_.add(score.kld);
  dp_mean_.add(score.dp);
  dp_square_.add(score.dp * score.dp);
  agreement_.add(score.same_top ? 1.0 : 0.0);
  kld_.push_back(score.kld);
  dp_.push_back(score.dp);
}

double DivergenceMeter::correlation() const {
  // var(a - b) = var(a) + var(b) - 2 cov(a, b)
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

std::vector<double> DivergenceMeter::sorted_kld() const {
  std::vector<double> values = kld_;
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<double> DivergenceMeter::sorted_dp() const {
  std::vector<double> values = dp_;
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace walsh
