#include "generate/text_chooser.h"

#include <algorithm>
#include <utility>

namespace walsh {

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

std::optional<int32_t> TextChooser::choose(std::span<const float> logits) {
  const size_t place = chosen_++;
  right_ = false;
  const std::optional<int32_t> token = chooser_.choose(logits);
  right_ = token && place < drafted_.size() && drafted_[place] == *token;
  return token;
}

void TextChooser::set_draft(std::vector<int32_t> tokens) {
  drafted_ = std::move(tokens);
  chosen_ = 0;
  right_ = true;
}

}  // namespace walsh
