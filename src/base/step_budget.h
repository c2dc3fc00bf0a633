// Bounds the work that one text may cause. Patterns and tables of untrusted files count their
// steps; they stop when the budget is used up or the caller asks for it (walsh/stop.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace walsh {

// Counts the steps of one text. It is not thread-safe.
class StepBudget {
 public:
  explicit StepBudget(uint64_t steps);
  // Makes a budget in proportion to a text of `bytes`, with a floor for short texts. It is far
  // above what published tokenizers need (3 to 30 steps per byte).
  static StepBudget for_text(uint64_t bytes);

  // Counts steps. Returns false if the budget is used up or a stop was requested. fail() says
  // which, and every later call returns false, too.
  bool take(uint64_t steps) noexcept {
    spent_ += steps;
    return spent_ < pause_ || pause();
  }
  // Throws interrupted, or limit naming `where`. It must be called after take() has returned false.
  [[noreturn]] void fail(std::string_view where) const;
  // Counts steps like take(), and calls fail() if that returns false.
  void spend(uint64_t steps, std::string_view where) {
    if (!take(steps)) fail(where);
  }

  uint64_t spent() const { return spent_; }

 private:
  bool pause() noexcept;

  uint64_t limit_, spent_ = 0;
  // At this count the limit and stop requests are checked next.
  uint64_t pause_;
  bool stopped_ = false;
};

}  // namespace walsh
