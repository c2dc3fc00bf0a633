// How many tokens of a text are worth guessing, by how many of the guesses so far were right.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh {

// These are times in units of a step that evaluates one token.
struct DraftCosts {
  double draft = 0.1;  // to guess a token
  double row = 0.1;    // to evaluate a token more in a step
};

class DraftDepth {
 public:
  // Tokens of a draft, at most.
  static constexpr int64_t kMost = 8;

  // The number, at most `most`, that promises the most tokens in a time, where so many texts are
  // guessed in a step. Where none does, one is guessed now and then, in case the text has changed.
  int64_t choose(const DraftCosts& costs, int64_t texts, int64_t most);
  void judge(size_t drafted, size_t right);
  // Returns the share of guesses that is expected to be right.
  double share() const { return right_ / (right_ + wrong_); }

 private:
  // Both fade with every guess. At the beginning of a text most guesses are taken to be right.
  double right_ = 3, wrong_ = 1;
  int64_t skipped_ = 0;  // drafts that did not seem worth it, since the last one
};

}  // namespace walsh
