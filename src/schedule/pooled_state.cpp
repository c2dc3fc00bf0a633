#include "schedule/pooled_state.h"

#include <algorithm>
#include <cmath>

#include "walsh/error.h"

namespace walsh {

int64_t PooledState::needed(Reading pooling, int64_t position, int64_t rows, bool ends) {
  if (pooling == Reading::mean) return rows;
  if (pooling == Reading::cls) return position == 0 ? rows : 0;
  return pooling == Reading::last && ends ? 1 : 0;
}

void PooledState::add(Reading pooling, int64_t position, std::span<const float> stream,
                      const FinalNorm& norm) {
  if (pooling == Reading::cls && position > 0) return;
  state_.assign(stream.begin(), stream.end());
  norm.apply(state_);
  if (pooling != Reading::mean) {
    values_ = state_;
    return;
  }
  if (position == 0) {
    sums_.assign(state_.size(), 0);
    count_ = 0;
  }
  for (size_t i = 0; i < state_.size(); ++i)
    sums_[i] += double{state_[i]};
  ++count_;
}

std::span<const float> PooledState::values() {
  if (count_ > 0) {
    values_.resize(sums_.size());
    for (size_t i = 0; i < sums_.size(); ++i)
      values_[i] = static_cast<float>(sums_[i] / static_cast<double>(count_));
  }
  if (!std::ranges::all_of(values_, [](float v) { return std::isfinite(v); }))
    throw Error(ErrorCode::bad_input, "embedding", "the model computed values that are not finite");
  return values_;
}

}  // namespace walsh
