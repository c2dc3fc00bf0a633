// Chooses the experts of a token on the CPU, as RoutingDesc says. kernels/cuda/experts/route_row.h
// does the same on GPUs.
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

// Chooses the experts of one token, best first, from the router's logits [experts.count]. The bias
// has as many values or is empty; it affects only the choice. Of equal scores the lower expert
// number wins. Logits that are not finite give weights that are not finite, but still distinct,
// existing experts. `chosen` has room for experts.chosen entries. `scores` is scratch memory.
void choose_experts(const ExpertsDesc& experts, const float* logits, std::span<const float> bias,
                    std::span<ChosenExpert> chosen, std::vector<float>& scores);

// Groups the rows of a batch by expert. Expert e has the slots [first[e], first[e + 1]), one per
// row that chose it, in the order of the rows.
struct ExpertSlots {
  std::vector<int64_t> first;   // Its shape is [experts + 1].
  std::vector<int64_t> row;     // A slot belongs to this row.
  std::vector<int32_t> expert;  // A slot belongs to this expert.
  std::vector<int64_t> slot;    // Its shape is [rows][chosen]; it has the slot of each choice.

  // Fills the lists from `choices` [rows][chosen].
  void group(std::span<const ChosenExpert> choices, int64_t chosen, int64_t experts);
  int64_t count(int64_t expert) const {
    return first[static_cast<size_t>(expert) + 1] - first[static_cast<size_t>(expert)];
  }
};

}  // namespace walsh
