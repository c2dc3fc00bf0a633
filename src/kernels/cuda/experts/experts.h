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
  const float* logits = nullptr;  // Its shape is [m][experts].
  // It is [experts] and added for the choice only; or null.
  const float* bias = nullptr;
  int64_t m = 0;
  int32_t* choices = nullptr;  // Its shape is [m][chosen], best first.
  float* weights = nullptr;    // Each choice has a weight.
};

inline constexpr int kMostRoutedExperts = 32 * kMostLaneExperts;

// Returns whether the kernels support a rule, within their limits of experts, choices and groups.
inline bool is_known(const RouteRule& rule) {
  return rule.experts > 0 && rule.experts <= kMostRoutedExperts && rule.chosen > 0 &&
         rule.chosen <= rule.experts && rule.groups > 0 && rule.experts % rule.groups == 0 &&
         rule.groups_chosen <= rule.groups && rule.groups <= 32 * kMostLaneGroups;
}
// Throws internal for a rule that is not supported or too many rows.
void check_routing(const RouteCall& call);

// Makes the choices, then slots and items according to the plan, in one or two launches.
void route(const RouteCall& call, const ExpertPlan& plan, const SlotArrays& slots, Stream stream);

// Holds choices that another program has made, by these numbers. Other numbers stand for no expert.
struct GivenChoices {
  const void* ids = nullptr;  // They are [m][chosen], int64 if `wide`, otherwise int32.
  bool wide = false;
  int64_t m = 0;
  int chosen = 0, experts = 0;
  // It has the shape [m][chosen] and receives the numbers; -1 stands for no expert.
  int32_t* choices = nullptr;
  float* zeros = nullptr;  // It has `width` floats and becomes zero.
  int64_t width = 0;
};
// Makes slots and items according to the plan, in one or two launches. Choices of no expert have
// the slot m * chosen and no item.
void group_given(const GivenChoices& call, const ExpertPlan& plan, const SlotArrays& slots,
                 Stream stream);

// Computes weights[i] *= factors[choices[i]] for `count` choices.
void scale_weights(const int32_t* choices, const float* factors, int64_t count, float* weights,
                   Stream stream);

// Clamps `count` values of gate and up.
void clamp_gates(float* gate, float* up, int64_t count, const GateClamp& clamp, Stream stream);

// Multiplies rows `slot[i]` of gate and up (`width` values each) by weights[i], for all `choices`
// i. Models that weigh the experts' inputs need it.
void weigh_slots(float* gate, float* up, const int32_t* slot, const float* weights, int64_t choices,
                 int64_t width, Stream stream);

// Describes the sum out[t] = (shared ? gate(share[t]) * out[t] : 0) + sum over k of weights[t][k] *
// results[slot of choice k of t], in the order of the choices. With a stream, scale times that is
// added to stream[t], and out stays unchanged.
struct ExpertSum {
  const float* results = nullptr;  // Its shape is [slots][width].
  const int32_t* slot = nullptr;   // Its shape is [m][chosen].
  const float* weights = nullptr;  // Its shape is [m][chosen]; null: all are 1.
  const float* share = nullptr;    // It is [m], and its sigmoid multiplies out; null: 1.
  bool shared = false;             // If true, out contains the shared expert's output.
  float* out = nullptr;            // Its shape is [m][width].
  float* stream = nullptr;         // Its shape is [m][width], or it is null.
  float scale = 1;
  int64_t m = 0, width = 0;
  int chosen = 0;
};
void sum_experts(const ExpertSum& call, Stream stream);

// Lets the blocks of the down product compute the sum, with up to kVectorSlots slots per item. The
// block that finishes last adds up a unit of a row's tiles (expert_share.h).
struct SumByBlocks {
  ExpertSum sum;
  const int32_t* row_of_slot = nullptr;
  // Its shape is [m][units of an item], zero before and after the launch. Null means that no sum is
  // computed.
  int32_t* arrived = nullptr;
};

}  // namespace walsh::cuda
