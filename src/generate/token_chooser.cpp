#include "generate/token_chooser.h"

#include <algorithm>
#include <cmath>

namespace walsh {

bool ChoiceOptions::stops(int32_t token) const {
  return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
}

TokenChooser::TokenChooser(const ChoiceOptions& options)
    : sampler_(options.sampler, options.biases, options.breakers), limit_(options.thinking) {
  if (limit_) budget_.emplace(*limit_);
  if (options.grammar) constraint_.emplace(options.grammar, options.stop_ids);
}

std::optional<int32_t> TokenChooser::choose(std::span<const float> logits) {
  std::span<const float> allowed = logits;
  if (constraint_) allowed = constraint_->allowed(logits);
  if (allowed.empty()) return std::nullopt;
  int32_t token = budget_ ? budget_->forced() : -1;
  if (token >= 0 && constraint_ && std::isinf(allowed[static_cast<size_t>(token)])) {
    budget_->give_up();
    token = -1;
  }
  if (token < 0) token = sampler_.sample(allowed);
  sampler_.accept(token);
  if (constraint_) constraint_->accept(token);
  if (budget_) budget_->accept(token);
  return token;
}

}  // namespace walsh
