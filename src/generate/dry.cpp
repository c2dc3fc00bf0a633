#include "generate/dry.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace walsh {

const std::vector<std::string>& default_sequence_breakers() {
  static const std::vector<std::string> texts = {"\n", ":", "\"", "*"};
  return texts;
}

std::shared_ptr<const SequenceBreakers> make_breakers(const SamplerOptions& options,
                                                      const Tokenizer& tokenizer,
                                                      const std::vector<std::string>* texts) {
  if (options.dry_multiplier == 0) return nullptr;
  auto breakers = std::make_shared<SequenceBreakers>();
  breakers->tokenizer = &tokenizer;
  breakers->texts = texts != nullptr ? *texts : default_sequence_breakers();
  if (breakers->texts == std::vector<std::string>{"none"}) breakers->texts.clear();
  return breakers;
}

DryHistory::DryHistory(const SamplerOptions& options,
                       std::shared_ptr<const SequenceBreakers> breakers)
    : multiplier_(options.dry_multiplier),
      base_(options.dry_base),
      allowed_(options.dry_allowed_length),
      last_n_(options.dry_penalty_last_n),
      breakers_(std::move(breakers)) {
  if (!breakers_) return;
  for (const std::string& text : breakers_->texts)
    longest_breaker_ = std::max(longest_breaker_, text.size());
}

// Returns whether the text of this token completes a breaker, which may have begun in earlier
// tokens.
bool DryHistory::breaks(int32_t token) {
  if (longest_breaker_ == 0) return false;
  const std::string text = tail_ + breakers_->tokenizer->decode({&token, 1}, false);
  const auto within = [&](const std::string& breaker) {
    return !breaker.empty() && text.find(breaker) != text.npos;
  };
  const bool broken = std::any_of(breakers_->texts.begin(), breakers_->texts.end(), within);
  tail_ = broken ? "" : text.substr(text.size() - std::min(text.size(), longest_breaker_ - 1));
  return broken;
}

void DryHistory::read(int32_t token) {
  if (!active()) return;
  unbroken_ = breaks(token) ? 0 : unbroken_ + 1;
  tokens_.push_back(token);
  // Up to twice as many tokens are stored, so that the oldest ones are dropped rarely.
  if (last_n_ > 0 && static_cast<int64_t>(tokens_.size()) > 2 * last_n_)
    tokens_.erase(tokens_.begin(), tokens_.end() - last_n_);
}

// Finds for every earlier position how many tokens before it equal the last ones of the text, by
// the Z-algorithm (Gusfield 1997) on the reversed text: matches_[i] is the length of the longest
// common prefix of the reversed text and the same without its first i tokens.
std::unordered_map<int32_t, float> DryHistory::penalties() {
  std::unordered_map<int32_t, float> result;
  const auto all = static_cast<int64_t>(tokens_.size());
  const int64_t n = last_n_ < 0 ? all : std::min(all, last_n_);
  if (!active() || n <= allowed_ || unbroken_ < allowed_) return result;
  const auto at = [&](int64_t i) { return tokens_[static_cast<size_t>(all - 1 - i)]; };
  matches_.assign(static_cast<size_t>(n), 0);
  std::unordered_map<int32_t, int64_t> lengths;
  for (int64_t i = 1, left = 0, right = 0; i < n; ++i) {
    int64_t& match = matches_[static_cast<size_t>(i)];
    if (i < right) match = std::min(right - i, matches_[static_cast<size_t>(i - left)]);
    while (i + match < n && at(match) == at(i + match))
      ++match;
    if (i + match > right) {
      left = i;
      right = i + match;
    }
    // A match does not extend across a breaker.
    const int64_t length = std::min(match, unbroken_);
    if (length < allowed_) continue;
    int64_t& longest = lengths[at(i - 1)];
    longest = std::max(longest, length);
  }
  constexpr double kMost = std::numeric_limits<float>::max();
  for (const auto& [token, length] : lengths) {
    const double penalty =
        static_cast<double>(multiplier_) * std::pow(base_, static_cast<double>(length - allowed_));
    result[token] = static_cast<float>(std::min(penalty, kMost));
  }
  return result;
}

}  // namespace walsh
