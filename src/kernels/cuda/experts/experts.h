// Declares the operations of layers with experts between the products: the choice of experts, the
// grouping of rows by expert, clamped gates, and the sum of the experts' outputs.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/experts/gate_clamp.h"
#include "kernels/cuda/experts/route_row.h"

namespace walsh::cuda {

struct RouteCall {
  RouteRule rule;
  const float* logits = nullptr;  // [m][experts]
  const float* bias = nullptr;    // [experts], added for the choice only; or null
  int64_t m = 0;
  int32_t* choices = nullptr;  // [m][chosen], best first
  float* weights = nullptr;    // of the choices
};

inline constexpr int kMostRoutedExperts = 32 * kMostLaneExperts;

// Returns whether the kernels support a rule: limits of experts, choices and groups.
inline bool is_known(const RouteRule& rule) {
  return rule.experts > 0 && rule.experts <= kMostRoutedExperts && rule.chosen > 0 &&
         rule.chosen <= rule.experts && rule.groups > 0 && rule.experts % rule.groups == 0 &&
         rule.groups_chosen <= rule.groups && rule.groups <= 32 * kMostLaneGroups;
}
// Throws internal for an unsupported rule or too many rows.
void check_routing(const RouteCall& call);

// Makes the choices, then slots and items according to the plan, in one or two launches.
void route(const RouteCall& call, const ExpertPlan& plan, const SlotArrays& slots, Stream stream);

// Another program chose experts by these numbers. Other numbers stand for no expert.
struct GivenChoices {
  const void* ids = nullptr;  // [m][chosen]: int64 if `wide`, otherwise int32
  bool wide = false;
  int64_t m = 0;
  int chosen = 0, experts = 0;
  int32_t* choices = nullptr;  // [m][chosen]: receives the numbers, -1 for no expert
  float* zeros = nullptr;      // [width]: becomes zero
  int64_t width = 0;
};
// Makes slots and items according to the plan, in one or two launches. Choices of no expert have
// the slot m * chosen and no item.
void group_given(const GivenChoices& call, const ExpertPlan& plan, const SlotArrays& slots,
                 Stream stream);

// Computes weights[i] *= factors[choices[i]] for `count` choices.
void scale_weights(const int32_t* choices, const float* factors, int64_t count, float* weights,
                   Stream stream);

// Clamps `count` values of both.
void clamp_gates(float* gate, float* up, int64_t count, const GateClamp& clamp, Stream stream);

// Multiplies rows `slot[i]` of gate and up (`width` values each) by weights[i] for all `choices` i,
// for models that weight the experts' inputs.
void weigh_slots(float* gate, float* up, const int32_t* slot, const float* weights, int64_t choices,
                 int64_t width, Stream stream);

// Computes out[t] = (shared ? gate(share[t]) * out[t] : 0) + sum over k of weights[t][k] *
// results[slot of choice k of t], in the order of the choices. With a stream, adds scale * that to
// stream[t] and leaves out unchanged.
struct ExpertSum {
  const float* results = nullptr;  // [slots][width]
  const int32_t* slot = nullptr;   // [m][chosen]
  const float* weights = nullptr;  // [m][chosen]; null: all 1
  const float* share = nullptr;    // [m], whose sigmoid multiplies out; null: 1
  bool shared = false;             // out contains the shared expert's output
  float* out = nullptr;            // [m][width]
  float* stream = nullptr;         // [m][width], or null
  float scale = 1;
  int64_t m = 0, width = 0;
  int chosen = 0;
};
void sum_experts(const ExpertSum& call, Stream stream);

// With this the blocks of the down product compute the sum, with up to kVectorSlots slots per item:
// the block that finishes last adds up a unit of a row's tiles (expert_share.h).
struct SumByBlocks {
  ExpertSum sum;
  const int32_t* row_of_slot = nullptr;
  // [m][units of an item], zero before and after the launch. Null: no sum.
  int32_t* arrived = nullptr;
};

}  // namespace walsh::cuda
