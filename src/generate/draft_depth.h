// Decides how many tokens of a text are worth guessing, by how many of the guesses so far were
// right.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh {

// Costs are times in units of a step that evaluates one token.
struct DraftCosts {
  double draft = 0.1;  // guessing a token takes this long
  double row = 0.1;    // one more token makes a step this much longer
};

class DraftDepth {
 public:
  // A draft has at most this many tokens.
  static constexpr int64_t kMost = 8;

  // Returns the number, at most `most`, that promises the most tokens per time, where this many
  // texts are guessed in a step. Where none does, it returns 1 now and then, in case the text has
  // changed.
  int64_t choose(const DraftCosts& costs, int64_t texts, int64_t most);
  void judge(size_t drafted, size_t right);
  // Returns the share of guesses that is expected to be right.
  double share() const { return right_ / (right_ + wrong_); }

 private:
  // These count the guesses; both fade with every draft. They start as if most guesses were right.
  double right_ = 3, wrong_ = 1;
  int64_t skipped_ = 0;  // no draft was worth it this many times in a row
};

}  // namespace walsh
