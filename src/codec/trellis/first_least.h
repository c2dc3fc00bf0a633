#pragma once

#include <algorithm>

namespace walsh::detail {

// Returns the index of the first of the smallest of `count` costs, where count is a multiple of 4;
// any of them if there are NaN. Two passes without a branch that depends on the data take a
// fraction of the time of one pass with such a branch.
template <class Cost>
int first_least(const Cost* cost, int count) {
  Cost least[4] = {cost[0], cost[1], cost[2], cost[3]};
  for (int i = 4; i < count; i += 4) {
    for (int j = 0; j < 4; ++j)
      least[j] = std::min(least[j], cost[i + j]);
  }
  const Cost all = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  return static_cast<int>(std::find(cost, cost + count - 1, all) - cost);
}

}  // namespace walsh::detail
