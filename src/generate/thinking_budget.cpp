#include "generate/thinking_budget.h"

#include <algorithm>

#include "text/utf8.h"

namespace walsh {
namespace {

constexpr int64_t kLongestCharacter = 4;  // It counts bytes, and so at most as many tokens.

// Returns whether a text ends inside a character.
bool is_cut(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(text.size(), kLongestCharacter - 1); ++back) {
    const Utf8Unit unit = decode_utf8(text.substr(text.size() - back));
    if (unit.kind == Utf8Unit::Kind::truncated) return true;
  }
  return false;
}

}  // namespace

ThinkingBudget::ThinkingBudget(const ThinkingLimit& limit)
    : limit_(&limit), inside_(limit.inside), forcing_(inside_ && limit.tokens <= 0) {}

int32_t ThinkingBudget::forced() const {
  return forcing_ && place_ < limit_->forced.size() ? limit_->forced[place_] : -1;
}

// Marks are looked for in the text, since tokens need not end where marks do.
void ThinkingBudget::accept(int32_t token) {
  if (forcing_) {
    if (place_ < limit_->forced.size() && limit_->forced[place_] == token) ++place_;
    if (place_ < limit_->forced.size()) return;
    forcing_ = inside_ = false;
    tail_.clear();
    return;
  }
  tail_ += limit_->bytes(token);
  const std::string& mark = inside_ ? limit_->end : limit_->begin;
  if (inside_) ++tokens_;
  if (!mark.empty() && tail_.find(mark) != tail_.npos) {
    inside_ = !inside_;
    tail_.clear();
  }
  const size_t kept = std::max(limit_->begin.size(), limit_->end.size());
  if (tail_.size() > kept) tail_.erase(0, tail_.size() - kept);
  const int64_t over = tokens_ - limit_->tokens;
  forcing_ = inside_ && over >= 0 && (!is_cut(tail_) || over >= kLongestCharacter);
  if (forcing_) place_ = 0;
}

}  // namespace walsh
