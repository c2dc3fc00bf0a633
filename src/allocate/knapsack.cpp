#include "allocate/knapsack.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/stop.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr double kUnreached = std::numeric_limits<double>::infinity();

uint64_t least_bytes(const std::vector<Choice>& item) {
  return std::ranges::min_element(item, {}, &Choice::bytes)->bytes;
}

uint64_t most_bytes(const std::vector<Choice>& item) {
  return std::ranges::max_element(item, {}, &Choice::bytes)->bytes;
}

// Returns the unit in which sizes are counted (see knapsack.h). `range` is the largest total size
// that the budget allows minus the smallest one.

uint64_t unit_of(std::span<const std::vector<Choice>> items, uint64_t range) {
  uint64_t divisor = 0;
  for (const auto& item : items) {
    const uint64_t least = least_bytes(item);
    for (const Choice& choice : item)
      divisor = std::gcd(divisor, choice.bytes - least);
  }
  if (divisor == 0) return 1;  // all choices have the same size
  return range / divisor <= kMaxUnits ? divisor : (range + kMaxUnits - 1) / kMaxUnits;
}

// best_[u] is the least damage of the items so far with exactly u units.
class Table {
 public:
  explicit Table(size_t units) : best_(units + 1, kUnreached), next_(units + 1) { best_[0] = 0; }

  void add(const std::vector<Choice>& item, uint64_t unit) {
    const uint64_t least = least_bytes(item);
    std::fill(next_.begin(), next_.end(), kUnreached);
    std::vector<uint8_t>& picks = picks_.emplace_back(best_.size());
    for (size_t c = 0; c < item.size(); ++c) {
      check_stop();
      const uint64_t extra = item[c].bytes - least;
      const size_t units = static_cast<size_t>((extra + unit - 1) / unit);
      for (size_t u = units; u < best_.size(); ++u) {
        const double damage = best_[u - units] + item[c].damage;
        if (damage >= next_[u]) continue;
        next_[u] = damage;
        picks[u] = static_cast<uint8_t>(c);
      }
    }
    best_.swap(next_);
  }

  // Traces back the choices that lead to the least damage.
  std::vector<int> picks(std::span<const std::vector<Choice>> items, uint64_t unit) const {
    auto u = static_cast<size_t>(std::min_element(best_.begin(), best_.end()) - best_.begin());
    std::vector<int> result(items.size());
    for (size_t i = items.size(); i-- > 0;) {
      const size_t c = picks_[i][u];
      result[i] = static_cast<int>(c);
      u -= static_cast<size_t>((items[i][c].bytes - least_bytes(items[i]) + unit - 1) / unit);
    }
    return result;
  }

 private:
  std::vector<double> best_, next_;
  std::vector<std::vector<uint8_t>> picks_;  // each item has one pick for every number of units
};

}  // namespace

KnapsackSolution solve_knapsack(std::span<const std::vector<Choice>> items, uint64_t budget,
                                const char* where) {
  uint64_t least = 0, range = 0;
  for (const auto& item : items) {
    if (item.empty() || item.size() > std::numeric_limits<uint8_t>::max()) {
      throw Error(ErrorCode::internal, where, "an item needs 1 to 255 choices");
    }
    for (const Choice& choice : item) {
      if (std::isfinite(choice.damage)) continue;
      throw Error(ErrorCode::internal, where, "the damage of a choice is not finite");
    }
    least += least_bytes(item);
    range += most_bytes(item) - least_bytes(item);
  }
  if (budget < least) {
    throw Error(ErrorCode::limit, where,
                std::to_string(budget) + " bytes are too few, the narrowest formats need " +
                    std::to_string(least));
  }
  KnapsackSolution solution;
  range = std::min(range, budget - least);
  solution.unit = unit_of(items, range);
  uint64_t most_units = 0;
  for (const auto& item : items)
    most_units += (most_bytes(item) - least_bytes(item) + solution.unit - 1) / solution.unit;
  Table table(static_cast<size_t>(std::min((budget - least) / solution.unit, most_units)));
  for (const auto& item : items)
    table.add(item, solution.unit);
  solution.picks = table.picks(items, solution.unit);
  for (size_t i = 0; i < items.size(); ++i) {
    const Choice& choice = items[i][static_cast<size_t>(solution.picks[i])];
    solution.bytes += choice.bytes;
    solution.damage += choice.damage;
  }
  return solution;
}

}  // namespace walsh
