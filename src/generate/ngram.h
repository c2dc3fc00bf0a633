// Drafts tokens without a model: if the last tokens of a text occurred before, what followed them
// is likely to follow again (prompt lookup decoding, Saxena 2023).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "generate/draft_source.h"

namespace walsh {

class NgramDraft {
 public:
  // Appends a token to the text.
  void add(int32_t token);
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // Returns up to `most` tokens that may follow, or none without a match.
  std::vector<int32_t> draft(int64_t most) const;
  // Reports how much of the last draft was right: drafts then get longer or shorter, and after
  // failures a longer match is needed.
  void judge(size_t drafted, size_t right);

 private:
  static constexpr int64_t kMatch = 3;              // this many tokens must match
  static constexpr int64_t kLeast = 2, kMost = 16;  // a draft has this many tokens

  uint64_t key() const;
  int64_t matching(int64_t place) const;

  std::vector<int32_t> tokens_;
  // The key of kMatch tokens leads to the end of their latest occurrence.
  std::unordered_map<uint64_t, int64_t> places_;
  // The best earlier match of the last tokens ends here; 0 means that there is none.
  int64_t place_ = 0;
  int64_t length_ = 4, needed_ = kMatch;
};

class NgramDrafts : public DraftSource {
 public:
  int64_t begin(std::span<const int32_t> tokens, const std::string& owner) override;
  void end(int64_t text) override { texts_.erase(text); }
  void draft(std::span<DraftTask> tasks) override;
  void judge(int64_t text, size_t drafted, size_t right) override;

 private:
  std::map<int64_t, NgramDraft> texts_;
  int64_t next_ = 0;
};

}  // namespace walsh
