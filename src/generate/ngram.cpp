#include "generate/ngram.h"

#include <algorithm>

namespace walsh {

// Returns a hash of the last kMatch tokens.
uint64_t NgramDraft::key() const {
  uint64_t key = 0;
  for (auto token = tokens_.end() - kMatch; token != tokens_.end(); ++token)
    key = (key ^ static_cast<uint32_t>(*token)) * 0x9E3779B97F4A7C15ull;
  return key;
}

// Returns how many tokens in front of `place` equal the last ones of the text.
int64_t NgramDraft::matching(int64_t place) const {
  const auto size = static_cast<int64_t>(tokens_.size());
  int64_t same = 0;
  while (same < std::min(place, kMost) && tokens_[static_cast<size_t>(place - 1 - same)] ==
                                              tokens_[static_cast<size_t>(size - 1 - same)])
    ++same;
  return same;
}

void NgramDraft::add(int32_t token) {
  tokens_.push_back(token);
  if (static_cast<int64_t>(tokens_.size()) < kMatch) return;
  int64_t& place = places_[key()];
  place_ = place;
  place = static_cast<int64_t>(tokens_.size());
}

std::vector<int32_t> NgramDraft::draft(int64_t most) const {
  std::vector<int32_t> result;
  if (place_ == 0 || matching(place_) < needed_) return result;
  const auto size = static_cast<int64_t>(tokens_.size());
  // At the end of the text the repetition continues with the draft's own tokens.
  for (int64_t i = 0; i < std::min(most, length_); ++i) {
    const int64_t at = place_ + i;
    result.push_back(at < size ? tokens_[static_cast<size_t>(at)]
                               : result[static_cast<size_t>(at - size)]);
  }
  return result;
}

void NgramDraft::judge(size_t drafted, size_t right) {
  if (right == drafted) {
    length_ = std::min(kMost, 2 * length_);
  } else {
    length_ = std::clamp(static_cast<int64_t>(right) + 1, kLeast, kMost);
  }
  needed_ = right > 0 ? kMatch : std::min<int64_t>(needed_ + 1, kMost);
}

int64_t NgramDrafts::begin(std::span<const int32_t>, const std::string&) {
  texts_[next_] = {};
  return next_++;
}

void NgramDrafts::draft(std::span<DraftTask> tasks) {
  for (DraftTask& task : tasks) {
    NgramDraft& text = texts_.at(task.text);
    for (const int32_t token : task.tokens.subspan(static_cast<size_t>(text.size())))
      text.add(token);
    if (task.chooser != nullptr) task.drafted = text.draft(task.most);
  }
}

void NgramDrafts::judge(int64_t text, size_t drafted, size_t right) {
  texts_.at(text).judge(drafted, right);
}

}  // namespace walsh
