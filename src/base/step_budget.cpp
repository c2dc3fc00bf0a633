#include "base/step_budget.h"

#include <algorithm>
#include <string>

#include "base/stop.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr uint64_t kCheckEvery = uint64_t{1} << 18;
// Any text gets this many steps, which take some tenths of a second.
constexpr uint64_t kShortText = 20'000'000;
constexpr uint64_t kPerByte = 200;

}  // namespace

StepBudget::StepBudget(uint64_t steps) : limit_(steps), pause_(std::min(steps, kCheckEvery)) {}

StepBudget StepBudget::for_text(uint64_t bytes) {
  return StepBudget(kShortText + kPerByte * bytes);
}

bool StepBudget::pause() noexcept {
  if (stopped_ || spent_ >= limit_) return false;
  const std::atomic<bool>* flag = stop_flag();
  stopped_ = flag != nullptr && flag->load(std::memory_order_relaxed);
  pause_ = std::min(limit_, spent_ + kCheckEvery);
  return !stopped_;
}

void StepBudget::fail(std::string_view where) const {
  if (stopped_) throw_stopped();
  throw Error(ErrorCode::limit, std::string(where),
              "takes more than " + std::to_string(limit_) + " steps");
}

}  // namespace walsh
