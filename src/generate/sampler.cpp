#include "generate/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "walsh/error.h"

namespace walsh {
namespace {

void expect(bool valid, const char* option, double value, const char* range) {
  if (!valid) {
    throw Error(ErrorCode::usage, option,
                fmt::format("{} is out of range, expected {}", value, range));
  }
}

}  // namespace

void check_sampler_options(const SamplerOptions& o) {
  expect(o.temperature >= 0 && o.temperature <= 1000, "temperature", o.temperature, "0 to 1000");
  expect(o.top_k >= 0, "top-k", o.top_k, "0 or more");
  expect(o.top_p >= 0 && o.top_p <= 1, "top-p", o.top_p, "0 to 1");
  expect(o.min_p >= 0 && o.min_p <= 1, "min-p", o.min_p, "0 to 1");
  expect(o.repeat_penalty > 0 && o.repeat_penalty <= 1000, "repeat-penalty", o.repeat_penalty,
         "more than 0 to 1000");
  expect(std::abs(o.presence_penalty) <= 1000, "presence-penalty", o.presence_penalty,
         "-1000 to 1000");
  expect(std::abs(o.frequency_penalty) <= 1000, "frequency-penalty", o.frequency_penalty,
         "-1000 to 1000");
  expect(o.repeat_last_n >= -1, "repeat-last-n", o.repeat_last_n, "-1 or more");
}

// The states of SplitMix64 are equally far apart, so that one is the seed of what comes after it.
SamplerOptions after_draws(SamplerOptions options, int64_t draws) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;
  options.seed += static_cast<uint64_t>(draws) * kStep;
  return options;
}

Sampler::Sampler(const SamplerOptions& options, std::vector<TokenBias> biases)
    : options_(options), random_(options.seed), biases_(std::move(biases)) {
  check_sampler_options(options);
}

void Sampler::accept(int32_t token) {
  if (!options_.on_devices()) ++chosen_[token];
  read(token);
}

void Sampler::read(int32_t token) {
  if (options_.repeat_penalty == 1 || options_.repeat_last_n == 0) return;
  ++counts_[token];
  if (options_.repeat_last_n < 0) return;
  recent_.push_back(token);
  if (recent_.size() <= static_cast<size_t>(options_.repeat_last_n)) return;
  const auto oldest = counts_.find(recent_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  recent_.pop_front();
}

int32_t Sampler::sample(std::span<const float> logits) {
  logits_.assign(logits.begin(), logits.end());
  for (float& logit : logits_)
    if (std::isnan(logit)) logit = -std::numeric_limits<float>::infinity();
  if (std::none_of(logits_.begin(), logits_.end(), [](float v) { return std::isfinite(v); })) {
    throw Error(ErrorCode::bad_input, "logits", "the model computed no finite logit");
  }
  penalize(logits_);
  if (options_.temperature == 0) return best(logits_);
  candidates_.clear();
  for (size_t i = 0; i < logits_.size(); ++i)
    candidates_.push_back({logits_[i], static_cast<int32_t>(i)});
  keep_top_k();
  // Infinity has all the probability, and differences to it are not numbers.
  if (!std::isfinite(candidates_[0].logit)) return candidates_[0].id;
  keep_top_p();
  keep_min_p();
  return draw();
}

// The repeat penalty as llama.cpp and transformers: every token once, negative logits are
// multiplied. The others as OpenAI defines them.
void Sampler::penalize(std::span<float> logits) const {
  for (const TokenBias& b : biases_)
    if (b.token >= 0 && static_cast<size_t>(b.token) < logits.size())
      logits[static_cast<size_t>(b.token)] += b.bias;
  for (const auto& [token, count] : chosen_) {
    logits[static_cast<size_t>(token)] -=
        options_.presence_penalty + static_cast<float>(count) * options_.frequency_penalty;
  }
  for (const auto& [token, count] : counts_) {
    const auto i = static_cast<size_t>(token);
    if (token < 0 || i >= logits.size()) continue;
    logits[i] =
        logits[i] > 0 ? logits[i] / options_.repeat_penalty : logits[i] * options_.repeat_penalty;
  }
}

int32_t Sampler::best(std::span<const float> logits) const {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void Sampler::keep_top_k() {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  size_t k = candidates_.size();
  if (options_.top_k > 0) k = std::min(k, static_cast<size_t>(options_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                    candidates_.end(), better);
  candidates_.resize(k);
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  for (const Candidate& c : candidates_)
    total += std::exp(static_cast<double>(c.logit) - candidates_[0].logit);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size()) {
    sum += std::exp(static_cast<double>(candidates_[kept].logit) - candidates_[0].logit);
    ++kept;
    if (sum >= options_.top_p * total) break;
  }
  candidates_.resize(kept);
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  const double least = candidates_[0].logit + std::log(static_cast<double>(options_.min_p));
  size_t kept = 1;
  while (kept < candidates_.size() && candidates_[kept].logit >= least)
    ++kept;
  candidates_.resize(kept);
}

int32_t Sampler::draw() {
  weights_.clear();
  double total = 0;
  for (const Candidate& c : candidates_) {
    const double above = static_cast<double>(c.logit) - candidates_[0].logit;
    total += std::exp(above / options_.temperature);
    weights_.push_back(total);
  }
  const double point = random_.uniform() * total;
  const auto chosen = std::upper_bound(weights_.begin(), weights_.end() - 1, point);
  return candidates_[static_cast<size_t>(chosen - weights_.begin())].id;
}

}  // namespace walsh
