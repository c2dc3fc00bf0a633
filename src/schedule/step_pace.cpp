#include "schedule/step_pace.h"

#include <algorithm>
#include <limits>

namespace walsh {
namespace {

constexpr int64_t kFirstRows = 32;  // it holds before anything was measured
constexpr int64_t kLeastRows = 8;
// The latest step has this weight in the running averages.
constexpr double kNewAlone = 0.25, kNewPerRow = 0.5;
// Prompts are assumed to add at least this share of their step's time: if a step happened to be as
// fast as one without prompts, the next would otherwise be unlimited.
constexpr double kLeastShare = 0.125;

}  // namespace

double StepPace::target() const {
  return std::max(seconds_, 2 * alone_);
}

int64_t StepPace::rows() const {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!(seconds_ > 0)) return kMost;
  if (!(per_row_ > 0)) return kFirstRows;
  const double rows = (target() - alone_) / per_row_;
  return rows < static_cast<double>(kMost) ? std::max(kLeastRows, static_cast<int64_t>(rows))
                                           : kMost;
}

void StepPace::took(double seconds, int64_t prompt_rows) {
  if (prompt_rows == 0) {
    alone_ = alone_ > 0 ? alone_ + kNewAlone * (seconds - alone_) : seconds;
    return;
  }
  // A few tokens at the end of a prompt are slower per token than many, so they are not counted.
  if (per_row_ > 0 && prompt_rows < rows() / 2 && seconds <= target()) return;
  const double added = std::max(seconds - alone_, kLeastShare * seconds);
  const double per_row = added / static_cast<double>(prompt_rows);
  per_row_ = per_row_ > 0 ? per_row_ + kNewPerRow * (per_row - per_row_) : per_row;
}

}  // namespace walsh
