// Speculation without a second model: where the last tokens of a text stood before, what followed
// there is likely to follow again. As prompt lookup decoding (Saxena 2023): the drafted tokens are
// evaluated together with the last one, and those that are chosen anyway cost no step of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace walsh {

class NgramDraft {
 public:
  // The next token of the text.
  void add(int32_t token);
  // At most `most` tokens that may follow; none where nothing speaks for any.
  std::vector<int32_t> draft(int64_t most) const;
  // So many of the last draft were right: from now on drafts are longer or shorter, and after
  // failures more has to speak for one.
  void judge(size_t drafted, size_t right);

 private:
  static constexpr int64_t kMatch = 3;              // tokens that have to be the same
  static constexpr int64_t kLeast = 2, kMost = 16;  // tokens of a draft

  uint64_t key() const;
  int64_t matching(int64_t place) const;

  std::vector<int32_t> tokens_;
  std::unordered_map<uint64_t, int64_t> places_;  // behind the latest kMatch tokens of this key
  int64_t place_ = 0;  // behind those that are as the last ones; 0: there is none
  int64_t length_ = 4, needed_ = kMatch;
};

}  // namespace walsh
