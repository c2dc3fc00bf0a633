// Which experts a token gets: the one place that gives RoutingDesc its meaning.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/layer.h"

namespace walsh {

struct ChosenExpert {
  int32_t expert = 0;
  float weight = 0;
};

// The experts of one token, best first, from the router's logits [experts.count] and the bias of
// the choice, of as many values or empty. Of equal scores the lower number is better; logits that
// are not finite give weights that are not, and still experts that exist, each once.
// `chosen` has room for experts.chosen. `scores` is scratch.
void choose_experts(const ExpertsDesc& experts, const float* logits, std::span<const float> bias,
                    std::span<ChosenExpert> chosen, std::vector<float>& scores);

// The rows of a batch by expert: the slots of expert e, one for each of its rows, in the rows'
// order, are [first[e], first[e + 1]).
struct ExpertSlots {
  std::vector<int64_t> first;   // [experts + 1]
  std::vector<int64_t> row;     // of each slot
  std::vector<int32_t> expert;  // of each slot
  std::vector<int64_t> slot;    // [rows][chosen]: of choice k of a row

  // `choices` are [rows][chosen].
  void group(std::span<const ChosenExpert> choices, int64_t chosen, int64_t experts);
  int64_t count(int64_t expert) const {
    return first[static_cast<size_t>(expert) + 1] - first[static_cast<size_t>(expert)];
  }
};

}  // namespace walsh
