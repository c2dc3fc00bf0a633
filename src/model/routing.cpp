#include "model/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace walsh {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void softmax(const float* logits, std::span<float> scores) {
  const float largest = *std::max_element(logits, logits + scores.size());
  float sum = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    sum += scores[i] = std::exp(logits[i] - largest);
  for (float& score : scores)
    score /= sum;
}

// Returns the index of the first of the largest values that are not taken yet, and marks it in
// `taken`.
size_t take_best(std::span<const float> values, std::span<float> taken) {
  size_t best = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (taken[i] != 0) continue;
    if (best == values.size() || values[i] > values[best]) best = i;
  }
  taken[best] = 1;
  return best;
}

// Sets the ranks of experts outside the best groups to kNever, so that they are not chosen.
void leave_groups(const RoutingDesc& routing, std::span<float> ranks) {
  const auto groups = static_cast<size_t>(routing.groups);
  const size_t size = ranks.size() / groups;
  std::vector<float> totals(groups), taken(groups), best(size);
  for (size_t g = 0; g < groups; ++g) {
    const auto group = ranks.subspan(g * size, size);
    const auto count = std::min(size, static_cast<size_t>(routing.group_best));
    std::partial_sort_copy(group.begin(), group.end(), best.begin(),
                           best.begin() + static_cast<std::ptrdiff_t>(count), std::greater<>());
    for (size_t i = 0; i < count; ++i)
      totals[g] += best[i];
  }
  for (int64_t k = 0; k < routing.groups_chosen; ++k)
    take_best(totals, taken);
  for (size_t i = 0; i < ranks.size(); ++i)
    if (taken[i / size] == 0) ranks[i] = kNever;
}

}  // namespace

void choose_experts(const ExpertsDesc& experts, const float* logits, std::span<const float> bias,
                    std::span<ChosenExpert> chosen, std::vector<float>& scratch) {
  const RoutingDesc& routing = experts.routing;
  const auto count = static_cast<size_t>(experts.count);
  scratch.assign(3 * count, 0.0f);
  const std::span scores(scratch.data(), count), ranks(scratch.data() + count, count),
      taken(scratch.data() + 2 * count, count);
  if (routing.sigmoid) {
    for (size_t i = 0; i < count; ++i)
      scores[i] = 1 / (1 + std::exp(-logits[i]));
  } else {
    softmax(logits, scores);
  }
  for (size_t i = 0; i < count; ++i)
    ranks[i] = scores[i] + (bias.empty() ? 0.0f : bias[i]);
  if (routing.groups > 1) leave_groups(routing, ranks);
  // This small start is that of transformers; the sigmoids of very low logits are all 0.
  float sum = 1e-20f;
  for (int64_t k = 0; k < experts.chosen; ++k) {
    const size_t best = take_best(ranks, taken);
    chosen[static_cast<size_t>(k)] = {static_cast<int32_t>(best), scores[best]};
    sum += scores[best];
  }
  for (int64_t k = 0; k < experts.chosen; ++k) {
    float& weight = chosen[static_cast<size_t>(k)].weight;
    if (routing.normalized) weight /= sum;
    weight *= routing.scale;
  }
}

void ExpertSlots::group(std::span<const ChosenExpert> choices, int64_t chosen, int64_t experts) {
  first.assign(static_cast<size_t>(experts) + 1, 0);
  row.resize(choices.size());
  slot.resize(choices.size());
  expert.resize(choices.size());
  for (const ChosenExpert& choice : choices)
    ++first[static_cast<size_t>(choice.expert) + 1];
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e)
    first[e + 1] += first[e];
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (size_t i = 0; i < choices.size(); ++i) {
    const int64_t place = next[static_cast<size_t>(choices[i].expert)]++;
    slot[i] = place;
    row[static_cast<size_t>(place)] = static_cast<int64_t>(i) / chosen;
    expert[static_cast<size_t>(place)] = choices[i].expert;
  }
}

}  // namespace walsh
