#include "generate/text_chooser.h"

#include <algorithm>

namespace walsh {

bool ChoiceOptions::stops(int32_t token) const {
  return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
}

int64_t TextProgress::draft_room() const {
  const int64_t room = capacity - positions;
  return max_tokens < 0 ? room : std::min(room, max_tokens - chosen - 1);
}

std::optional<StopReason> TextProgress::end(bool wanted, bool complete) const {
  if (!wanted) return StopReason::callback;
  if (complete) return StopReason::stop_token;
  if (max_tokens >= 0 && chosen >= max_tokens) return StopReason::max_tokens;
  if (positions > capacity) return StopReason::context_full;
  return std::nullopt;
}

TextChooser::TextChooser(const ChoiceOptions& options, bool lookup)
    : sampler_(options.sampler, options.biases, options.breakers) {
  if (options.grammar) constraint_.emplace(options.grammar, options.stop_ids);
  if (lookup) lookup_.emplace();
}

void TextChooser::read(int32_t token) {
  sampler_.read(token);
  if (lookup_) lookup_->add(token);
}

std::optional<int32_t> TextChooser::choose(std::span<const float> logits) {
  const size_t place = chosen_++;
  right_ = false;
  std::span<const float> allowed = logits;
  if (constraint_) allowed = constraint_->allowed(logits);
  if (allowed.empty()) return std::nullopt;
  const int32_t token = sampler_.sample(allowed);
  sampler_.accept(token);
  if (constraint_) constraint_->accept(token);
  if (lookup_) lookup_->add(token);
  right_ = place < drafted_.size() && drafted_[place] == token;
  return token;
}

const std::vector<int32_t>& TextChooser::draft(int64_t most) {
  drafted_.clear();
  if (lookup_ && most > 0) drafted_ = lookup_->draft(most);
  chosen_ = 0;
  right_ = true;
  return drafted_;
}

void TextChooser::judge(size_t right) {
  if (lookup_ && !drafted_.empty()) lookup_->judge(drafted_.size(), right);
  drafted_.clear();
}

}  // namespace walsh
