// A bound on the work that one text may cause: what patterns and tables of untrusted files do with
// a text is counted in steps, and ends when the caller asks for the end (walsh/stop.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace walsh {

// Not for use by several threads at once.
class StepBudget {
 public:
  explicit StepBudget(uint64_t steps);
  // Proportional to a text of `bytes`, with room for what short texts may need. Far above what the
  // published tokenizers take (3 to 30 steps per byte).
  static StepBudget for_text(uint64_t bytes);

  // Counts steps. False if there are no more of them or the end was asked for: fail() tells which,
  // and every later call gives the same.
  bool take(uint64_t steps) noexcept {
    spent_ += steps;
    return spent_ < pause_ || pause();
  }
  // After take() gave false: throws interrupted, or limit naming `where`.
  [[noreturn]] void fail(std::string_view where) const;
  // The two in one.
  void spend(uint64_t steps, std::string_view where) {
    if (!take(steps)) fail(where);
  }

  uint64_t spent() const { return spent_; }

 private:
  bool pause() noexcept;

  uint64_t limit_, spent_ = 0;
  uint64_t pause_;  // steps at which to look at the limit and at requests to end
  bool stopped_ = false;
};

}  // namespace walsh
