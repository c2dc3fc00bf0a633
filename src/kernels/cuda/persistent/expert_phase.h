// Finds the work of expert products in the persistent kernel. It depends on the experts that the
// router chose, so every block computes itself which k-tiles of which matrices a warp multiplies.
// The functions also compile for the host, where tests call them.
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/route_row.h"
#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

// Holds the extra arguments of an expert phase. They are kept out of ProgramPhase, which therefore
// has the same size in models without experts.
//
// The first product of an expert layer is gate and up. Its tiles are, for each of the two sets,
// those of the chosen experts in order, then those of the shared expert. The second product is
// down. Along the k-tiles of each tile come the rows of the chosen experts, then the row of the
// shared one; its inputs are already multiplied by the experts' weights, so the results add up as
// in one long row. In both products an expert contributes a segment of `per_slot` k-tiles that are
// contiguous in its matrix.
struct alignas(16) ExpertPhase {
  struct Arrays {
    const uint4* codes = nullptr;
    const std::byte* scales = nullptr;
    const std::byte* offsets = nullptr;
  };

  int chosen = 0;  // A token gets this many experts; 0: this is no expert phase.
  int per_slot = 0, per_shared = 0;
  // It is true for down, where slots follow each other along the row.
  bool by_row = false;
  // If true, the logit behind the experts' logits weighs the shared expert.
  bool gates_shared = false;
  // It is ProgramPhase::segment of the shared expert's input.
  uint16_t shared_segment = 0;
  int width = 0, shared_width = 0;  // With by_row, an expert's input has this many values.
  int64_t stride = 0;               // Experts' matrices are this many bytes apart.
  Arrays shared[kMaxMatmuls];       // They are the shared expert's matrices, one per set.
  const uint8_t* shared_signs = nullptr;
  FormView shared_form;
  // These two are set in a phase that chooses experts, and 0 in all others. `next` is the next
  // phase that chooses, or the number of phases. `last` is the last phase whose weights this choice
  // determines.
  int next = 0, last = 0;
  RouteRule rule;
  const float* bias = nullptr;
  const float* logits = nullptr;  // These values are exchanged.
};

inline constexpr int kMostSlots = 64;  // It counts chosen experts and the shared one.
// The choosing warp keeps this many scores per lane in registers. The persistent kernel has fewer
// registers for them than the kernels that only choose.
inline constexpr int kMostStepLaneExperts = 16;

// Holds the choice of experts as a block knows it. The shared expert is the last slot.
struct alignas(16) Choice {
  float weights[kMostSlots];
  int32_t experts[kMostSlots];

  // Returns the size, with room behind it for the logits (the shared expert's included) and the
  // scratch memory of the choice.
  static constexpr int bytes(const RouteRule& rule) {
    return static_cast<int>(sizeof(Choice)) + 4 * logit_places(rule) + RouteScratch::bytes(rule);
  }
  static constexpr int logit_places(const RouteRule& rule) {
    return (rule.experts + 1 + 3) / 4 * 4;
  }
  WALSH_EXPERT_LANE float* logits() { return reinterpret_cast<float*>(this + 1); }
  WALSH_EXPERT_LANE RouteScratch scratch(const RouteRule& rule) {
    return RouteScratch::at(logits() + logit_places(rule), rule);
  }
};

// Names consecutive k-tiles of one matrix.
struct ExpertRun {
  int set, slot;  // Slot number `chosen` is the shared expert.
  int first, count;

  bool operator==(const ExpertRun&) const = default;
};

// Returns the run that starts at k-tile `at` of the phase and stops at the end of its matrix or in
// front of k-tile `end`.
WALSH_EXPERT_LANE ExpertRun expert_run(const ExpertPhase& e, int at, int end) {
  const int all = e.chosen * e.per_slot + e.per_shared;
  const int which = at / all, inside = at - which * all;
  const bool shared = inside >= e.chosen * e.per_slot;
  const int slot = shared ? e.chosen : inside / e.per_slot;
  const int per = shared ? e.per_shared : e.per_slot;
  const int begin = inside - slot * e.per_slot, left = per - begin;
  return {e.by_row ? 0 : which, slot, begin + (e.by_row ? which * per : 0),
          left < end - at ? left : end - at};
}

// Returns an upper bound for the number of runs that `count` consecutive k-tiles can belong to.
constexpr int most_expert_runs(const ExpertPhase& e, int count) {
  const int least = e.per_shared > 0 && e.per_shared < e.per_slot ? e.per_shared : e.per_slot;
  return count < 2 ? count : (count - 2) / least + 2;
}

// Says where a k-tile is within its input: its slot, its index in the slot, and the first value of
// the slot.
struct InputSlot {
  int slot = -1;  // If it is -1, the input is not divided into slots.
  int k_tile = 0, first = 0;
};

WALSH_EXPERT_LANE InputSlot input_slot(const ExpertPhase& e, int k_tile) {
  if (!e.by_row) return {-1, k_tile, 0};
  const bool shared = k_tile >= e.chosen * e.per_slot;
  const int slot = shared ? e.chosen : k_tile / e.per_slot;
  return {slot, k_tile - slot * e.per_slot, slot * e.width};
}

}  // namespace walsh::cuda
