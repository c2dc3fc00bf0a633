#include "generate/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "generate/sampling_options.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// XTC has a seed of its own, so that it draws other numbers than the choice of tokens.
constexpr uint64_t kXtcSeed = 0x5851F42D4C957F2Dull;

}  // namespace

void check_sampler_options(const SamplerOptions& options) {
  for (const SamplingOption& option : sampling_options()) {
    std::visit(
        [&](auto member) {
          if constexpr (requires { member.decided; }) {
            const double value = options.*member.decided;
            if (value >= option.least && value <= option.most) return;
            throw Error(ErrorCode::usage, option.name,
                        fmt::format("{} is out of range, expected {}", value, range_text(option)));
          }
        },
        option.member);
  }
}

// SplitMix64's states are an arithmetic sequence, so the seed of the rest can be computed.
SamplerOptions after_draws(SamplerOptions options, int64_t draws) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;
  options.seed += static_cast<uint64_t>(draws) * kStep;
  return options;
}

Sampler::Sampler(const SamplerOptions& options, std::vector<TokenBias> biases,
                 std::shared_ptr<const SequenceBreakers> breakers)
    : options_(options),
      random_(options.seed),
      xtc_random_(options.seed + kXtcSeed),
      biases_(std::move(biases)),
      dry_(options, std::move(breakers)) {
  check_sampler_options(options);
}

void Sampler::accept(int32_t token) {
  if (options_.presence_penalty != 0 || options_.frequency_penalty != 0) ++chosen_[token];
  read(token);
}

void Sampler::read(int32_t token) {
  dry_.read(token);
  if (options_.repeat_penalty == 1 || options_.repeat_last_n == 0) return;
  ++counts_[token];
  if (options_.repeat_last_n < 0) return;
  recent_.push_back(token);
  if (recent_.size() <= static_cast<size_t>(options_.repeat_last_n)) return;
  const auto oldest = counts_.find(recent_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  recent_.pop_front();
}

namespace {

// Below this the exponential adds nothing to a sum that contains exp(0) = 1.
constexpr double kNothing = -50;

// Returns the weight beside that of the best logit: only their ratio matters.
double weight_of(double logit, double best, double temperature) {
  const double above = (logit - best) / temperature;
  return above > kNothing ? std::exp(above) : 0;
}

// Returns the entropy, in nats, of probabilities whose weights add up to `total`.
double entropy_of(std::span<const double> weights, double total) {
  double entropy = 0;
  for (const double w : weights)
    if (w > 0) entropy -= w / total * std::log(w / total);
  return entropy;
}

// Returns whether only the best logit can be chosen.
bool is_greedy(const SamplerOptions& options) {
  const auto* end = options.order.data() + options.steps;
  return options.temperature == 0 && options.dynatemp_range <= 0 && options.xtc_probability <= 0 &&
         std::find(options.order.data(), end, SamplerStep::temperature) != end;
}

// Returns the first of the largest logits, or -1 if it is not finite.
int32_t best_token(std::span<const float> logits) {
  // Independent lanes keep comparisons from waiting for each other.
  std::array<float, 16> lanes;
  lanes.fill(-kInfinity);
  size_t i = 0;
  for (; i + lanes.size() <= logits.size(); i += lanes.size())
    for (size_t k = 0; k < lanes.size(); ++k)
      lanes[k] = logits[i + k] > lanes[k] ? logits[i + k] : lanes[k];
  for (; i < logits.size(); ++i)
    lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
  const float best = *std::max_element(lanes.begin(), lanes.end());
  if (!std::isfinite(best)) return -1;
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

}  // namespace

template <class Change>
void Sampler::change_logits(const std::unordered_map<int32_t, int64_t>& tokens,
                            const Change& change) {
  if (tokens.empty()) return;
  sorted_ = 0;
  if (by_id_) {
    for (const auto& [token, count] : tokens)
      if (token >= 0 && static_cast<size_t>(token) < candidates_.size())
        change(candidates_[static_cast<size_t>(token)].logit, count);
    return;
  }
  for (Candidate& c : candidates_)
    if (const auto found = tokens.find(c.id); found != tokens.end()) change(c.logit, found->second);
}

// Sorts the `most` best candidates to the front.
void Sampler::sort(size_t most) {
  if (sorted_ >= most) return;
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(most);
  if (most - sorted_ < 64) {
    std::partial_sort(first, last, candidates_.end(), better);
  } else {
    if (last != candidates_.end()) std::nth_element(first, last, candidates_.end(), better);
    std::sort(first, last, better);
  }
  by_id_ = false;
  sorted_ = most;
}

// Sorts more candidates if the one at `place` is not sorted yet.
void Sampler::sort_some(size_t place) {
  if (place >= sorted_) sort(std::min(candidates_.size(), std::max<size_t>(64, 4 * place)));
}

// Returns the sum of all weights; the best candidate has to come first.
double Sampler::weigh_all() const {
  double total = 0;
  for (const Candidate& c : candidates_)
    total += weight_of(c.logit, candidates_[0].logit, temperature_);
  return total;
}

// If logits are infinite, the first has all the probability, because differences to it are NaN.
double Sampler::weigh() {
  sort(candidates_.size());
  if (candidates_[0].logit == kInfinity || temperature_ == 0) candidates_.resize(1);
  weights_.clear();
  double total = 0;
  for (const Candidate& c : candidates_) {
    weights_.push_back(
        candidates_.size() == 1 ? 1 : weight_of(c.logit, candidates_[0].logit, temperature_));
    total += weights_.back();
  }
  return total;
}

struct Sampler::Steps {
  // Applies the repeat penalty as llama.cpp and transformers do: each token is penalized once, and
  // negative logits are multiplied. Then it applies the frequency and presence penalties as OpenAI
  // defines them.
  static void penalize(Sampler& s) {
    s.change_logits(s.counts_, [&](float& logit, int64_t) {
      logit = logit > 0 ? logit / s.options_.repeat_penalty : logit * s.options_.repeat_penalty;
    });
    s.change_logits(s.chosen_, [&](float& logit, int64_t count) {
      logit -=
          s.options_.presence_penalty + static_cast<float>(count) * s.options_.frequency_penalty;
    });
  }

  static void penalize_repetitions(Sampler& s) {
    const auto penalties = s.dry_.penalties();
    if (penalties.empty()) return;
    s.sorted_ = 0;
    for (Candidate& c : s.candidates_)
      if (const auto found = penalties.find(c.id); found != penalties.end())
        c.logit -= found->second;
  }

  static void keep_top_n_sigma(Sampler& s) {
    if (s.options_.top_n_sigma <= 0) return;
    double sum = 0, squares = 0, count = 0;
    float best = -kInfinity;
    for (const Candidate& c : s.candidates_) {
      best = std::max(best, c.logit);
      if (!std::isfinite(c.logit)) continue;
      sum += c.logit;
      squares += static_cast<double>(c.logit) * c.logit;
      ++count;
    }
    if (best == kInfinity || count == 0) return;
    const double mean = sum / count;
    const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
    const double least = best - s.options_.top_n_sigma * deviation;
    std::erase_if(s.candidates_, [&](const Candidate& c) { return c.logit < least; });
    s.by_id_ = false;
    s.sorted_ = 0;
  }

  static void keep_top_k(Sampler& s) {
    if (s.options_.top_k <= 0 || static_cast<size_t>(s.options_.top_k) >= s.candidates_.size())
      return;
    const auto k = static_cast<size_t>(s.options_.top_k);
    s.sort(k);
    s.candidates_.resize(k);
  }

  // This is locally typical sampling (Meister et al. 2022).
  static void keep_typical_p(Sampler& s) {
    if (s.options_.typical_p >= 1) return;
    const double total = s.weigh();
    const double entropy = entropy_of(s.weights_, total);
    std::vector<std::pair<double, size_t>> typical;
    for (size_t i = 0; i < s.candidates_.size(); ++i)
      if (s.weights_[i] > 0)
        typical.emplace_back(std::abs(-std::log(s.weights_[i] / total) - entropy), i);
    std::sort(typical.begin(), typical.end());
    double sum = 0;
    std::vector<size_t> kept;
    for (const auto& [distance, i] : typical) {
      kept.push_back(i);
      sum += s.weights_[i];
      if (sum > s.options_.typical_p * total) break;
    }
    std::sort(kept.begin(), kept.end());
    for (size_t i = 0; i < kept.size(); ++i)
      s.candidates_[i] = s.candidates_[kept[i]];
    s.candidates_.resize(kept.size());
    s.sorted_ = kept.size();
  }

  static void keep_top_p(Sampler& s) {
    if (s.options_.top_p >= 1) return;
    s.sort(1);
    size_t kept = 1;
    if (s.candidates_[0].logit != kInfinity && s.temperature_ != 0) {
      double left = s.options_.top_p * s.weigh_all() - 1;
      for (; left > 0 && kept < s.candidates_.size(); ++kept) {
        s.sort_some(kept);
        left -= weight_of(s.candidates_[kept].logit, s.candidates_[0].logit, s.temperature_);
      }
    }
    s.candidates_.resize(kept);
    s.sorted_ = kept;
  }

  static void keep_min_p(Sampler& s) {
    if (s.options_.min_p <= 0) return;
    s.sort(1);
    const double share = std::log(static_cast<double>(s.options_.min_p)) * s.temperature_;
    const double least = s.candidates_[0].logit + share;
    std::erase_if(s.candidates_, [&](const Candidate& c) { return !(c.logit >= least); });
    s.by_id_ = false;
    s.sorted_ = std::min(s.sorted_, s.candidates_.size());
  }

  // XTC excludes top choices (p-e-w 2024).
  static void exclude_top(Sampler& s) {
    if (s.options_.xtc_probability <= 0) return;
    const bool now = s.xtc_random_.uniform() < s.options_.xtc_probability;
    if (!now || s.options_.xtc_threshold > 0.5f) return;
    const double total = s.weigh();
    size_t above = 0;
    while (above < s.weights_.size() && s.weights_[above] >= s.options_.xtc_threshold * total)
      ++above;
    if (above < 2) return;
    s.candidates_.erase(s.candidates_.begin(),
                        s.candidates_.begin() + static_cast<std::ptrdiff_t>(above - 1));
    s.sorted_ = s.candidates_.size();
  }

  // This equals llama.cpp's, after Zhu et al. 2024, "EDT: Improving large language models'
  // generation by entropy-based dynamic temperature sampling".
  static void set_temperature(Sampler& s) {
    const SamplerOptions& o = s.options_;
    s.temperature_ = o.temperature;
    if (o.dynatemp_range <= 0) return;
    s.temperature_ = 1;
    const double total = s.weigh();
    if (s.candidates_.size() < 2) return;
    const double share =
        entropy_of(s.weights_, total) / std::log(static_cast<double>(s.weights_.size()));
    const double least = std::max(0.0, static_cast<double>(o.temperature) - o.dynatemp_range);
    const double most = static_cast<double>(o.temperature) + o.dynatemp_range;
    s.temperature_ = least + (most - least) * std::pow(share, o.dynatemp_exponent);
  }

  struct Row {
    SamplerStep step;
    std::string_view name;
    std::array<std::string_view, 2> other_names;  // llama.cpp accepts these as well
    void (*run)(Sampler& sampler);
  };
  static constexpr Row kRows[] = {
      {SamplerStep::penalties, "penalties", {}, penalize},
      {SamplerStep::dry, "dry", {}, penalize_repetitions},
      {SamplerStep::top_n_sigma, "top_n_sigma", {"top-n-sigma"}, keep_top_n_sigma},
      {SamplerStep::top_k, "top_k", {"top-k"}, keep_top_k},
      {SamplerStep::typical_p, "typ_p", {"typical_p", "typical-p"}, keep_typical_p},
      {SamplerStep::top_p, "top_p", {"top-p"}, keep_top_p},
      {SamplerStep::min_p, "min_p", {"min-p"}, keep_min_p},
      {SamplerStep::xtc, "xtc", {}, exclude_top},
      {SamplerStep::temperature, "temperature", {"temp"}, set_temperature},
  };
  static_assert(std::size(kRows) == kSamplerSteps);

  static const Row& row(SamplerStep step) {
    return *std::find_if(std::begin(kRows), std::end(kRows),
                         [&](const Row& row) { return row.step == step; });
  }
  // Returns null if there is no step of that name.
  static const Row* find(std::string_view name) {
    const auto* found = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) {
      return row.name == name || row.other_names[0] == name || row.other_names[1] == name;
    });
    return name.empty() || found == std::end(kRows) ? nullptr : found;
  }
};

int32_t Sampler::sample(std::span<const float> logits) {
  if (is_greedy(options_) && biases_.empty() && chosen_.empty() && counts_.empty() &&
      !dry_.active()) {
    if (const int32_t token = best_token(logits); token >= 0) return token;
  }
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    candidates_[i] = {std::isnan(logits[i]) ? -kInfinity : logits[i], static_cast<int32_t>(i)};
  if (std::none_of(candidates_.begin(), candidates_.end(),
                   [](const Candidate& c) { return std::isfinite(c.logit); })) {
    throw Error(ErrorCode::bad_input, "logits", "the model computed no finite logit");
  }
  sorted_ = 0;
  by_id_ = true;
  temperature_ = 1;
  for (const TokenBias& b : biases_)
    if (b.token >= 0 && static_cast<size_t>(b.token) < candidates_.size())
      candidates_[static_cast<size_t>(b.token)].logit += b.bias;
  for (int i = 0; i < options_.steps; ++i)
    Steps::row(options_.order[static_cast<size_t>(i)]).run(*this);
  return draw();
}

int32_t Sampler::draw() {
  sort(1);
  // An infinite logit has all the probability, so nothing is drawn, as on devices.
  if (temperature_ == 0 || candidates_[0].logit == kInfinity) return candidates_[0].id;
  const float best = candidates_[0].logit;
  double left = random_.uniform() * weigh_all();
  int32_t chosen = candidates_[0].id;
  // The best candidates come first, so usually few of them have to be sorted.
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sort_some(i);
    const double weight = weight_of(candidates_[i].logit, best, temperature_);
    if (weight == 0) break;
    chosen = candidates_[i].id;
    left -= weight;
    if (left < 0) break;
  }
  return chosen;
}

std::vector<std::string> sampler_steps(const SamplerOptions& options) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(options.steps));
  for (int i = 0; i < options.steps; ++i)
    names.emplace_back(Sampler::Steps::row(options.order[static_cast<size_t>(i)]).name);
  return names;
}

void set_sampler_order(SamplerOptions& options, std::string_view names) {
  options.steps = 0;
  while (!names.empty()) {
    const size_t end = names.find(';');
    const std::string_view name = names.substr(0, end);
    names = end == names.npos ? std::string_view() : names.substr(end + 1);
    const Sampler::Steps::Row* const found = Sampler::Steps::find(name);
    if (found == nullptr)
      throw Error(ErrorCode::usage, "samplers", fmt::format("there is no sampler '{}'", name));
    const auto last = options.order.begin() + options.steps;
    if (std::find(options.order.begin(), last, found->step) != last)
      throw Error(ErrorCode::usage, "samplers", fmt::format("'{}' comes twice", name));
    options.order[static_cast<size_t>(options.steps++)] = found->step;
  }
}

std::string sampler_order(const SamplerOptions& options) {
  std::string names;
  for (const std::string& name : sampler_steps(options))
    names += (names.empty() ? "" : ";") + name;
  return names;
}

}  // namespace walsh
