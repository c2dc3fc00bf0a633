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
  int64_t tokens = 0;           // of reasoning, at most
  std::string begin, end;       // the texts around the reasoning
  bool inside = false;          // the text begins inside it
  std::vector<int32_t> forced;  // these tokens end it: `end`, and what should stand around it
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
  int64_t tokens_ = 0;  // of the reasoning
  std::string tail_;    // the end of the text, in which a mark may have begun
  size_t place_ = 0;    // forced tokens that were chosen
  bool forcing_ = false;
};

}  // namespace walsh
