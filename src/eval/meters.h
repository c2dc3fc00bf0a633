// Accumulates what `walsh eval` reports, which is the perplexity of a model and its divergence from
// a reference. The memory does not grow with the number of tokens.
#pragma once

#include <cstdint>

#include "eval/distribution.h"
#include "eval/token_score.h"

namespace walsh {

// Holds an estimate and its error. The error is that of the mean, which is the sample standard
// deviation / sqrt(n), or 0 for fewer than 2 values.
struct Estimate {
  double value = 0;
  double error = 0;
};

// Keeps a running mean and variance (Welford 1962).
class MeanMeter {
 public:
  void add(double x);
  int64_t count() const { return count_; }
  Estimate mean() const;
  double variance() const;  // it is the sample variance (divided by n - 1)

 private:
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

class PerplexityMeter {
 public:
  void add(double nll) { nll_.add(nll); }
  int64_t count() const { return nll_.count(); }
  Estimate mean_nll() const { return nll_.mean(); }
  double variance() const { return nll_.variance(); }  // This is the variance of the NLL per token.
  // Returns exp(mean NLL), with the error of the mean propagated to first order.
  Estimate perplexity() const;

 private:
  MeanMeter nll_;
};

class DivergenceMeter {
 public:
  void add(const TokenScore& score);
  int64_t count() const { return kld_.count(); }

  Estimate perplexity() const { return model_.perplexity(); }
  Estimate reference_perplexity() const { return reference_.perplexity(); }
  // Returns the mean of ln(PPL / PPL of the reference) over tokens, with the error of the paired
  // differences.
  Estimate ln_ratio() const { return difference_.mean(); }
  // Returns the Pearson correlation of the two models' NLL per token, or 0 if it is undefined.
  double correlation() const;
  Estimate kld() const { return kld_mean_.mean(); }
  Estimate dp() const { return dp_mean_.mean(); }
  // Returns the root mean square of dp, with its error to first order.
  Estimate rms_dp() const;
  // Returns the share of tokens where both models agree on the most probable token, with its
  // binomial error.
  Estimate same_top() const;

  // Returns the divergence of every token.
  const Distribution& kld_values() const { return kld_; }
  const Distribution& dp_values() const { return dp_; }

 private:
  PerplexityMeter model_, reference_;
  MeanMeter difference_, kld_mean_, dp_mean_, dp_square_, agreement_;
  Distribution kld_, dp_;
};

}  // namespace walsh
