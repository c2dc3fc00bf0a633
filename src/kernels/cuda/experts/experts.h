// Steps of layers with experts between the products: which experts a row gets, the rows by expert,
// clamped gates, and the sum of what the experts give.
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
  const float* bias = nullptr;    // [experts] of the choice, or null
  int64_t m = 0;
  int32_t* choices = nullptr;  // [m][chosen], best first
  float* weights = nullptr;    // of them
};

inline constexpr int kMostRoutedExperts = 32 * kMostLaneExperts;

// Whether kernels can choose by a rule: not more experts than that, and only choices and groups
// that there are.
inline bool is_known(const RouteRule& rule) {
  return rule.experts > 0 && rule.experts <= kMostRoutedExperts && rule.chosen > 0 &&
         rule.chosen <= rule.experts && rule.groups > 0 && rule.experts % rule.groups == 0 &&
         rule.groups_chosen <= rule.groups && rule.groups <= 32 * kMostLaneGroups;
}
// Throws internal for a rule that is not, or more rows than kernels count.
void check_routing(const RouteCall& call);

// One or two launches: the choices, then slots and items as the plan says.
void route(const RouteCall& call, const ExpertPlan& plan, const SlotArrays& slots, Stream stream);

// The clamp of `count` values of both.
void clamp_gates(float* gate, float* up, int64_t count, const GateClamp& clamp, Stream stream);

// Rows `slot[i]` of gate and up, `width` values each, times weights[i], for `choices` i: experts
// whose weights are those of their input.
void weigh_slots(float* gate, float* up, const int32_t* slot, const float* weights, int64_t choices,
                 int64_t width, Stream stream);

// out[t] = (shared ? gate(share[t]) * out[t] : 0) + sum over k of weights[t][k] * results[slot of
// choice k of t], in the order of the choices. With a stream: stream[t] += scale * that, and out
// stays as it is.
struct ExpertSum {
  const float* results = nullptr;  // [slots][width]
  const int32_t* slot = nullptr;   // [m][chosen]
  const float* weights = nullptr;  // [m][chosen], or null: all are 1
  const float* share = nullptr;    // [m], whose sigmoid multiplies what out holds, or null: 1
  bool shared = false;             // out holds what the shared expert gives
  float* out = nullptr;            // [m][width]
  float* stream = nullptr;         // [m][width], or null
  float scale = 1;
  int64_t m = 0, width = 0;
  int chosen = 0;
};
void sum_experts(const ExpertSum& call, Stream stream);

// The same by the blocks of the last product, of up to kVectorSlots slots to an item: each part of
// a row by the block that comes last.
struct SumByBlocks {
  ExpertSum sum;
  const int32_t* row_of_slot = nullptr;
  // [m][blocks of an item], zero; and zero again in the end. Null: nothing is added up.
  int32_t* arrived = nullptr;
};

}  // namespace walsh::cuda
