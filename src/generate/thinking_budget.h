// Limits how long a model thinks before it answers: after so many tokens of reasoning, the mark
// that ends it is chosen whatever the logits say.
//
// Source: budget forcing of s1 (Muennighoff et al. 2025).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace walsh {

struct ThinkingLimit {
  int64_t tokens = 0;           // The reasoning has at most this many tokens.
  std::string begin, end;       // These texts stand around the reasoning.
  bool inside = false;          // If true, the text begins inside the reasoning.
  std::vector<int32_t> forced;  // These tokens end it: `end`, and what stands around.
  // Returns what a token adds to the text, with the text of special tokens.
  std::function<std::string_view(int32_t)> bytes;
};

// Reads the tokens of a text. Copies of it go on by themselves.
class ThinkingBudget {
 public:
  explicit ThinkingBudget(const ThinkingLimit& limit);

  // Returns the token that has to follow; -1: any may.
  int32_t forced() const;
  // Gives up ending the reasoning: the forced token is not allowed here.
  void give_up() { place_ = limit_->forced.size(); }
  void accept(int32_t token);

 private:
  const ThinkingLimit* limit_;
  bool inside_;
  int64_t tokens_ = 0;  // It counts tokens of the reasoning.
  std::string tail_;    // It is the end of the text, where a mark may have begun.
  size_t place_ = 0;    // This many forced tokens were chosen.
  bool forcing_ = false;
};

}  // namespace walsh
