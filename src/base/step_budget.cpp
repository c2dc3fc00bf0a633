#include "base/step_budget.h"

#include <algorithm>
#include <string>
#include <utility>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr uint64_t kCheckEvery = uint64_t{1} << 18;
constexpr uint64_t kShortText = 20'000'000;  // steps; some tenths of a second
constexpr uint64_t kPerByte = 200;

}  // namespace

StepBudget::StepBudget(uint64_t steps, std::function<void()> check)
    : limit_(steps), pause_(std::min(steps, kCheckEvery)), check_(std::move(check)) {}

StepBudget StepBudget::for_text(uint64_t bytes, std::function<void()> check) {
  return StepBudget(kShortText + kPerByte * bytes, std::move(check));
}

bool StepBudget::pause() noexcept {
  if (thrown_ || spent_ >= limit_) return false;
  try {
    if (check_) check_();
  } catch (...) {
    thrown_ = std::current_exception();
    return false;
  }
  pause_ = std::min(limit_, spent_ + kCheckEvery);
  return true;
}

void StepBudget::fail(std::string_view where) const {
  if (thrown_) std::rethrow_exception(thrown_);
  throw Error(ErrorCode::limit, std::string(where),
              "takes more than " + std::to_string(limit_) + " steps");
}

}  // namespace walsh
