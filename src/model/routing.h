// Chooses the experts for a token on the CPU, as RoutingDesc says; kernels/cuda/experts/route_row.h
// does so on GPUs.
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

// Chooses the experts of one token, best first, from the router's logits [experts.count] and from
// the bias, which counts only for the choice (the same number of values, or empty). Of equal scores
// the lower expert number wins. Logits that are not finite give weights that are not finite, but
// still distinct, existing experts. `chosen` has room for experts.chosen entries. `scores` is
// scratch memory.
void choose_experts(const ExpertsDesc& experts, const float* logits, std::span<const float> bias,
                    std::span<ChosenExpert> chosen, std::vector<float>& scores);

// Groups the rows of a batch by expert. Expert e has the slots [first[e], first[e + 1]), one per
// row that chose it, in the order of the rows.
struct ExpertSlots {
  std::vector<int64_t> first;   // [experts + 1]
  std::vector<int64_t> row;     // row of each slot
  std::vector<int32_t> expert;  // expert of each slot
  std::vector<int64_t> slot;    // [rows][chosen]: the slot of each choice of a row

  // `choices` is [rows][chosen].
  void group(std::span<const ChosenExpert> choices, int64_t chosen, int64_t experts);
  int64_t count(int64_t expert) const {
    return first[static_cast<size_t>(expert) + 1] - first[static_cast<size_t>(expert)];
  }
};

}  // namespace walsh
