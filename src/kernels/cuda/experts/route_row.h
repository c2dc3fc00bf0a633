// The experts of one token: model/routing in the steps of a few lanes. Constants and the order of
// the choice are those of the CPU; only the sum of a softmax is added in another order.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "arch/layer.h"
#include "kernels/cuda/experts/lanes.h"

namespace walsh::cuda {

// ExpertsDesc and RoutingDesc as kernels have them.
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

// Scratch of one row, which all lanes see.
struct RouteScratch {
  float* scores;           // [experts]
  float* ranks;            // [experts]
  float* totals;           // [groups]
  unsigned char* taken;    // [experts]
  unsigned char* is_best;  // [groups]

  static constexpr int bytes(int experts) { return (14 * experts + 15) / 16 * 16; }
  // There are no more groups than experts.
  static WALSH_EXPERT_LANE RouteScratch at(void* memory, int experts) {
    RouteScratch s;
    s.scores = static_cast<float*>(memory);
    s.ranks = s.scores + experts;
    s.totals = s.ranks + experts;
    s.taken = reinterpret_cast<unsigned char*>(s.totals + experts);
    s.is_best = s.taken + experts;
    return s;
  }
};

WALSH_EXPERT_LANE bool is_number(float x) {
  return x == x;
}

// The first of the largest of values[count] that are not taken; it is marked. What is no number is
// never better than another one, but the first one of those that are left stays if it is none.
template <typename Lanes>
WALSH_EXPERT_LANE int take_best(const Lanes& lanes, const float* values, unsigned char* taken,
                                int count) {
  Candidate best;
  int first = count;
  for (int i = lanes.index(); i < count; i += lanes.count()) {
    if (taken[i] != 0) continue;
    if (i < first) first = i;
    const Candidate next{values[i], i};
    if (is_number(next.value) && better(next, best)) best = next;
  }
  best = lanes.best(best);
  first = lanes.least(first);
  const int chosen = best.index < 0 || !is_number(values[first]) ? first : best.index;
  lanes.sync();  // all have read the marks
  if (lanes.index() == 0) taken[chosen] = 1;
  lanes.sync();
  return chosen;
}

// take_best again and again, of values that are all numbers: those of a lane stay in registers, and
// no lane waits for another one's marks. PerLane * lanes.count() are at least as many.
template <int PerLane, typename Lanes, typename Take>
WALSH_EXPERT_LANE void take_all_best(const Lanes& lanes, const float* values, int count, int most,
                                     const Take& take) {
  float own[PerLane];
  for (int j = 0; j < PerLane; ++j) {
    const int i = lanes.index() + j * lanes.count();
    own[j] = i < count ? values[i] : 0.0f;
  }
  unsigned taken = 0;
  for (int k = 0; k < most; ++k) {
    Candidate best;
    for (int j = 0; j < PerLane; ++j) {
      const Candidate next{own[j], lanes.index() + j * lanes.count()};
      if (next.index < count && (taken >> j & 1u) == 0 && better(next, best)) best = next;
    }
    best = lanes.best(best);
    for (int j = 0; j < PerLane; ++j)
      if (lanes.index() + j * lanes.count() == best.index) taken |= 1u << j;
    take(k, best.index);
  }
}

template <typename Lanes>
WALSH_EXPERT_LANE bool are_numbers(const Lanes& lanes, const float* values, int count) {
  int least = 1;
  for (int i = lanes.index(); i < count; i += lanes.count())
    if (!is_number(values[i])) least = 0;
  return lanes.least(least) != 0;
}

// The sum of the `most` largest of values[count], from the largest on.
WALSH_EXPERT_LANE float sum_of_best(const float* values, int count, int most) {
  float sum = 0;
  Candidate last{std::numeric_limits<float>::infinity(), -1};
  bool any = false;
  for (int k = 0; k < most && k < count; ++k) {
    Candidate best;
    for (int i = 0; i < count; ++i) {
      const Candidate next{values[i], i};
      const bool left = is_number(next.value) && (!any || better(last, next));
      if (left && better(next, best)) best = next;
    }
    if (best.index < 0) return std::numeric_limits<float>::quiet_NaN();
    sum += best.value;
    last = best;
    any = true;
  }
  return sum;
}

// Experts outside the best groups get minus infinity.
template <typename Lanes>
WALSH_EXPERT_LANE void leave_groups(const Lanes& lanes, const RouteRule& rule,
                                    const RouteScratch& s) {
  const int size = rule.experts / rule.groups;
  for (int g = lanes.index(); g < rule.groups; g += lanes.count()) {
    s.totals[g] = sum_of_best(s.ranks + g * size, size, rule.group_best);
    s.is_best[g] = 0;
  }
  lanes.sync();
  for (int k = 0; k < rule.groups_chosen; ++k)
    take_best(lanes, s.totals, s.is_best, rule.groups);
  for (int i = lanes.index(); i < rule.experts; i += lanes.count())
    if (s.is_best[i / size] == 0) s.ranks[i] = -std::numeric_limits<float>::infinity();
  lanes.sync();
}

template <typename Lanes>
WALSH_EXPERT_LANE void score_row(const Lanes& lanes, const RouteRule& rule, const float* logits,
                                 const float* bias, const RouteScratch& s) {
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  if (!rule.sigmoid) {
    for (int i = lanes.index(); i < rule.experts; i += lanes.count())
      largest = logits[i] > largest ? logits[i] : largest;
    largest = lanes.largest(largest);
  }
  for (int i = lanes.index(); i < rule.experts; i += lanes.count()) {
    const float score = rule.sigmoid ? 1.0f / (1.0f + expf(-logits[i])) : expf(logits[i] - largest);
    s.scores[i] = score;
    sum += score;
  }
  if (!rule.sigmoid) sum = lanes.sum(sum);
  for (int i = lanes.index(); i < rule.experts; i += lanes.count()) {
    if (!rule.sigmoid) s.scores[i] /= sum;
    s.ranks[i] = s.scores[i] + (bias != nullptr ? bias[i] : 0.0f);
    s.taken[i] = 0;
  }
  lanes.sync();
}

// The experts of a token, best first, and their weights.
template <typename Lanes>
WALSH_EXPERT_LANE void route_row(const Lanes& lanes, const RouteRule& rule, const float* logits,
                                 const float* bias, const RouteScratch& s, int32_t* experts,
                                 float* weights) {
  score_row(lanes, rule, logits, bias, s);
  if (rule.groups > 1) leave_groups(lanes, rule, s);
  float sum = 1e-20f;  // as on the CPU: sigmoids of very low logits are all 0
  const auto take = [&](int k, int best) {
    sum += s.scores[best];
    if (lanes.index() == 0) experts[k] = best;
  };
  constexpr int kFew = 4, kSome = 8;  // of a lane
  const bool numbers = are_numbers(lanes, s.ranks, rule.experts);
  if (numbers && rule.experts <= kFew * lanes.count()) {
    take_all_best<kFew>(lanes, s.ranks, rule.experts, rule.chosen, take);
  } else if (numbers && rule.experts <= kSome * lanes.count()) {
    take_all_best<kSome>(lanes, s.ranks, rule.experts, rule.chosen, take);
  } else {
    for (int k = 0; k < rule.chosen; ++k)
      take(k, take_best(lanes, s.ranks, s.taken, rule.experts));
  }
  lanes.sync();
  for (int k = lanes.index(); k < rule.chosen; k += lanes.count()) {
    const float score = s.scores[experts[k]];
    weights[k] = (rule.normalized ? score / sum : score) * rule.scale;
  }
}

}  // namespace walsh::cuda
