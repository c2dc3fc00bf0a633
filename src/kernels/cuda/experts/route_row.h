// Chooses the experts of one token, as model/routing does, with a few cooperating lanes. Constants
// and the order of the choice are those of the CPU. Only the sum of a softmax is added in another
// order.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "arch/layer.h"
#include "kernels/cuda/experts/lanes.h"

namespace walsh::cuda {

// Holds ExpertsDesc and RoutingDesc in the form that kernels take.
struct RouteRule {
  int experts = 0, chosen = 0;
  int groups = 1, groups_chosen = 1, group_best = 1;
  float scale = 1;
  bool sigmoid = false, normalized = true;
};

inline RouteRule route_rule(const ExpertsDesc& e) {
  RouteRule rule;
  rule.experts = static_cast<int>(e.count);
  rule.chosen = static_cast<int>(e.chosen);
  rule.groups = static_cast<int>(e.routing.groups);
  rule.groups_chosen = static_cast<int>(e.routing.groups_chosen);
  rule.group_best = static_cast<int>(e.routing.group_best);
  rule.scale = e.routing.scale;
  rule.sigmoid = e.routing.sigmoid;
  rule.normalized = e.routing.normalized;
  return rule;
}

// A lane has at most this many scores, and there are at most this many groups.
inline constexpr int kMostLaneExperts = 32, kMostLaneGroups = 4;

// Points to the memory of a row, which all lanes share.
struct RouteScratch {
  float* scores;           // Its shape is [experts].
  int32_t* chosen;         // Its shape is [chosen], best first.
  float* totals;           // Its shape is [groups].
  unsigned char* is_best;  // Its shape is [groups].

  static constexpr int bytes(const RouteRule& rule) {
    return (4 * rule.experts + 4 * rule.chosen + 5 * rule.groups + 15) / 16 * 16;
  }
  static WALSH_EXPERT_LANE RouteScratch at(void* memory, const RouteRule& rule) {
    RouteScratch s;
    s.scores = static_cast<float*>(memory);
    s.chosen = reinterpret_cast<int32_t*>(s.scores + rule.experts);
    s.totals = reinterpret_cast<float*>(s.chosen + rule.chosen);
    s.is_best = reinterpret_cast<unsigned char*>(s.totals + rule.groups);
    return s;
  }
};

WALSH_EXPERT_LANE bool is_number(float x) {
  return x == x;
}

// Maps floats to unsigned integers in the same order. Both zeros become equal, and NaN becomes 0.
WALSH_EXPERT_LANE uint32_t key_of(float x) {
  const float number = x + 0.0f;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return !is_number(x) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

WALSH_EXPERT_LANE float number_of(uint32_t key) {
  const uint32_t bits = key >> 31 ? key & 0x7fffffffu : ~key;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

// Holds the maximum of several values and its index, which is -1 if there is none.
struct Best {
  uint32_t key = 0;
  int index = -1;
};

// Holds values 0 .. count - 1, distributed over lanes. A lane has those with the numbers index,
// index + lanes.count(), ... All lanes must call every function together.
template <int Each, typename Lanes>
class LaneValues {
 public:
  WALSH_EXPERT_LANE LaneValues(const Lanes& lanes, int count) : lanes_(lanes), count_(count) {}

  // Sets each value to function(index, old value).
  template <typename Function>
  WALSH_EXPERT_LANE void set(const Function& function) {
    WALSH_EXPERT_UNROLL
    for (int j = 0; j < Each; ++j)
      if (at(j) < count_) value_[j] = function(at(j), value_[j]);
  }

  // Marks all values as not taken. Returns whether all of them are numbers.
  WALSH_EXPERT_LANE void take_none() {
    bool numbers = true;
    WALSH_EXPERT_UNROLL
    for (int j = 0; j < Each; ++j) {
      key_[j] = at(j) < count_ ? key_of(value_[j]) : 0;
      numbers = numbers && (at(j) >= count_ || key_[j] != 0);
    }
    taken_ = 0;
    numbers_ = lanes_.least(numbers ? 1 : 0) == 1;
  }

  // Returns the largest value in [begin, end) that is neither taken nor NaN, or the first of equal
  // ones.
  WALSH_EXPERT_LANE Best best(int begin, int end) const {
    return best_of([&](int j) { return at(j) >= begin && at(j) < end ? key_[j] : 0; });
  }

  WALSH_EXPERT_LANE void take(int i) {
    WALSH_EXPERT_UNROLL
    for (int j = 0; j < Each; ++j) {
      if (at(j) != i) continue;
      key_[j] = 0;
      taken_ |= 1u << j;
    }
  }

  // Takes the first of the largest values that are not taken. NaN is never better than another
  // value, but if the first remaining value is NaN, it is taken.
  WALSH_EXPERT_LANE int take_best() {
    int chosen = best_of([&](int j) { return key_[j]; }).index;
    if (!numbers_) {
      // `first` becomes twice the index of the first remaining value, plus one if that is NaN.
      int first = 2 * count_;
      WALSH_EXPERT_UNROLL
      for (int j = 0; j < Each; ++j) {
        if (at(j) >= count_ || (taken_ >> j & 1u) != 0) continue;
        const int here = 2 * at(j) + (key_[j] != 0 ? 0 : 1);
        first = here < first ? here : first;
      }
      first = lanes_.least(first);
      if (chosen < 0 || first % 2 != 0) chosen = first / 2;
    }
    take(chosen);
    return chosen;
  }

  // These return the keys of this lane's values, and whether all values of all lanes are numbers.
  // Both are valid behind take_none() as long as nothing is taken.
  WALSH_EXPERT_LANE const uint32_t (&keys() const)[Each] { return key_; }
  WALSH_EXPERT_LANE bool are_numbers() const { return numbers_; }

  // Applies a function to this lane's values.
  template <typename Function>
  WALSH_EXPERT_LANE void each(const Function& function) const {
    WALSH_EXPERT_UNROLL
    for (int j = 0; j < Each; ++j)
      if (at(j) < count_) function(at(j), value_[j]);
  }

 private:
  WALSH_EXPERT_LANE int at(int j) const { return lanes_.index() + j * lanes_.count(); }

  // Reduces twice, first to the largest key (0 means none), then to the first index that has it.
  template <typename Keys>
  WALSH_EXPERT_LANE Best best_of(const Keys& keys) const {
    uint32_t most = 0;
    WALSH_EXPERT_UNROLL
    for (int j = 0; j < Each; ++j)
      most = keys(j) > most ? keys(j) : most;
    most = lanes_.most(most);
    int first = std::numeric_limits<int>::max();
    WALSH_EXPERT_UNROLL
    for (int j = Each - 1; j >= 0; --j)
      first = keys(j) == most ? at(j) : first;
    first = lanes_.least(first);
    return {most, most == 0 ? -1 : first};
  }

  const Lanes& lanes_;
  int count_;
  float value_[Each] = {};
  uint32_t key_[Each] = {};  // A value that is taken or NaN has 0.
  uint32_t taken_ = 0;       // Bit j says whether this lane's value j is taken.
  bool numbers_ = true;
};

// Keeps a lane's few values in the order in which they are taken, so that taking one needs few
// instructions that wait for each other. All values have to be numbers.
template <typename Lanes>
class SortedValues {
 public:
  static constexpr int kEach = 4;

  // `keys` are those of the lane's values, with the numbers index, index + lanes.count(), ...; 0
  // stands for no value.
  WALSH_EXPERT_LANE SortedValues(const Lanes& lanes, const uint32_t (&keys)[kEach])
      : lanes_(lanes) {
    WALSH_EXPERT_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const auto index = static_cast<uint32_t>(lanes.index() + j * lanes.count());
      value_[j] = keys[j] == 0 ? 0 : uint64_t{keys[j]} << 32 | ~index;
    }
    order(0, 1);
    order(2, 3);
    order(0, 2);
    order(1, 3);
    order(1, 2);
  }

  // Takes the first of the largest values. All lanes call it together.
  WALSH_EXPERT_LANE int take_best() {
    const auto key = static_cast<uint32_t>(value_[0] >> 32);
    const auto place = static_cast<uint32_t>(value_[0]);
    const uint32_t most = lanes_.most(key);
    const uint32_t first = lanes_.most(key == most ? place : 0);
    if (key == most && place == first) {
      WALSH_EXPERT_UNROLL
      for (int j = 0; j + 1 < kEach; ++j)
        value_[j] = value_[j + 1];
      value_[kEach - 1] = 0;
    }
    return static_cast<int>(~first);
  }

 private:
  WALSH_EXPERT_LANE void order(int a, int b) {
    const uint64_t larger = value_[a] > value_[b] ? value_[a] : value_[b];
    value_[b] = value_[a] > value_[b] ? value_[b] : value_[a];
    value_[a] = larger;
  }

  const Lanes& lanes_;
  // Each is the key above the complement of the index; 0: none.
  uint64_t value_[kEach];
};

// Sets experts outside the best groups to minus infinity. A group's total is the sum of its largest
// scores, from the largest on.
template <int Each, typename Lanes>
WALSH_EXPERT_LANE void leave_groups(const Lanes& lanes, const RouteRule& rule,
                                    const RouteScratch& s, LaneValues<Each, Lanes>& ranks) {
  const int size = rule.experts / rule.groups;
  const int most = rule.group_best < size ? rule.group_best : size;
  for (int g = 0; g < rule.groups; ++g) {
    float total = 0;
    for (int k = 0; k < most; ++k) {
      const Best next = ranks.best(g * size, (g + 1) * size);
      if (next.index >= 0) ranks.take(next.index);
      total += next.index >= 0 ? number_of(next.key) : std::numeric_limits<float>::quiet_NaN();
    }
    if (lanes.index() != 0) continue;
    s.totals[g] = total;
    s.is_best[g] = 0;
  }
  lanes.sync();
  LaneValues<kMostLaneGroups, Lanes> totals(lanes, rule.groups);
  totals.set([&](int g, float) { return s.totals[g]; });
  totals.take_none();
  for (int k = 0; k < rule.groups_chosen; ++k) {
    const int best = totals.take_best();
    if (lanes.index() == 0) s.is_best[best] = 1;
  }
  lanes.sync();
  ranks.set([&](int i, float rank) {
    return s.is_best[i / size] != 0 ? rank : -std::numeric_limits<float>::infinity();
  });
  ranks.take_none();
}

// Sets the scores of a row; load(i) returns the logit of expert i.
template <int Each, typename Lanes, typename Load>
WALSH_EXPERT_LANE void score_row(const Lanes& lanes, const RouteRule& rule, const Load& load,
                                 LaneValues<Each, Lanes>& scores) {
  scores.set([&](int i, float) { return load(i); });
  if (rule.sigmoid) {
    scores.set([](int, float x) { return 1.0f / (1.0f + expf(-x)); });
    return;
  }
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  scores.each([&](int, float x) { largest = x > largest ? x : largest; });
  largest = lanes.largest(largest);
  scores.set([&](int, float x) { return expf(x - largest); });
  scores.each([&](int, float x) { sum += x; });
  sum = lanes.sum(sum);
  scores.set([&](int, float x) { return x / sum; });
}

// Writes a token's experts, best first, and their weights to `experts` and `weights`, and the
// experts to the scratch. `bias` may be null. A lane has at most Each experts.
template <int Each, typename Lanes, typename Load>
WALSH_EXPERT_LANE void route_row(const Lanes& lanes, const RouteRule& rule, const Load& load,
                                 const float* bias, const RouteScratch& s, int32_t* experts,
                                 float* weights) {
  LaneValues<Each, Lanes> ranks(lanes, rule.experts);
  score_row(lanes, rule, load, ranks);
  ranks.each([&](int i, float score) { s.scores[i] = score; });
  lanes.sync();
  if (bias != nullptr) ranks.set([&](int i, float score) { return score + bias[i]; });
  ranks.take_none();
  if (rule.groups > 1) leave_groups(lanes, rule, s, ranks);
  float sum = 1e-20f;  // As on the CPU, sigmoids of very low logits may all be 0.
  const auto take = [&](auto& values) {
    for (int k = 0; k < rule.chosen; ++k) {
      const int best = values.take_best();
      sum += s.scores[best];
      if (lanes.index() == 0) s.chosen[k] = best;
    }
  };
  bool sorted = false;
  if constexpr (Each == SortedValues<Lanes>::kEach) {
    sorted = ranks.are_numbers();
    if (sorted) {
      SortedValues<Lanes> values(lanes, ranks.keys());
      take(values);
    }
  }
  if (!sorted) take(ranks);
  lanes.sync();
  for (int k = lanes.index(); k < rule.chosen; k += lanes.count()) {
    const float score = s.scores[s.chosen[k]];
    experts[k] = s.chosen[k];
    weights[k] = (rule.normalized ? score / sum : score) * rule.scale;
  }
}

}  // namespace walsh::cuda
