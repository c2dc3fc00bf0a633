// A bound on the work that one text may cause, and a way to stop it: what patterns and tables of
// untrusted files do with a text is counted in steps.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

namespace walsh {

// Not for use by several threads at once.
class StepBudget {
 public:
  // `check` is called every quarter of a million steps or so and may throw, which ends the work.
  explicit StepBudget(uint64_t steps, std::function<void()> check = {});
  // Proportional to a text of `bytes`, with room for what short texts may need. Far above what the
  // published tokenizers take (3 to 30 steps per byte).
  static StepBudget for_text(uint64_t bytes, std::function<void()> check = {});

  // Counts steps. False if there are no more of them or the check threw: fail() tells which, and
  // every later call gives the same.
  bool take(uint64_t steps) noexcept {
    spent_ += steps;
    return spent_ < pause_ || pause();
  }
  // After take() gave false: throws what the check threw, or limit naming `where`.
  [[noreturn]] void fail(std::string_view where) const;
  // The two in one.
  void spend(uint64_t steps, std::string_view where) {
    if (!take(steps)) fail(where);
  }

  uint64_t spent() const { return spent_; }

 private:
  bool pause() noexcept;

  uint64_t limit_, spent_ = 0;
  uint64_t pause_;  // steps at which to look at the limit and the check
  std::function<void()> check_;
  std::exception_ptr thrown_;
};

}  // namespace walsh
