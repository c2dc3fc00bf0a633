// Bounds the work that one text may cause: patterns and tables of untrusted files count their
// steps, and stop when the budget is used up or the caller asks for it (walsh/stop.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace walsh {

// This class is not thread-safe.
class StepBudget {
 public:
  explicit StepBudget(uint64_t steps);
  // The budget is proportional to a text of `bytes`, with a floor for short texts. It is far above
  // what published tokenizers need (3 to 30 steps per byte).
  static StepBudget for_text(uint64_t bytes);

  // Counts steps. Returns false if the budget is used up or a stop was requested: fail() says
  // which, and every later call returns false too.
  bool take(uint64_t steps) noexcept {
    spent_ += steps;
    return spent_ < pause_ || pause();
  }
  // Must be called after take() returned false: throws interrupted, or limit naming `where`.
  [[noreturn]] void fail(std::string_view where) const;
  // Calls take(), and fail() if that returns false.
  void spend(uint64_t steps, std::string_view where) {
    if (!take(steps)) fail(where);
  }

  uint64_t spent() const { return spent_; }

 private:
  bool pause() noexcept;

  uint64_t limit_, spent_ = 0;
  uint64_t pause_;  // count at which the limit and stop requests are checked next
  bool stopped_ = false;
};

}  // namespace walsh
