// Products of experts in a step: which k-tiles of which matrices a warp has depends on the choice
// of the experts, so blocks find it out themselves. What is found here compiles for the host, too.
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/route_row.h"
#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

// What a phase is told beside its ProgramPhase, which stays as it is where a model has no experts.
//
// The first product of a layer's experts is gate and up: its tiles are, set by set, those of the
// chosen experts one after the other, then those of the shared one. The second is down: its k-tiles
// are, tile by tile, those of the chosen experts' rows and then of the shared one's, so that their
// results, whose inputs have the experts' weights, add up like those of one long row. Both are
// segments of `per_slot` k-tiles that lie one after the other in a matrix.
struct alignas(16) ExpertPhase {
  struct Arrays {
    const uint4* codes = nullptr;
    const std::byte* scales = nullptr;
    const std::byte* offsets = nullptr;
  };

  int chosen = 0;  // experts of a token; 0: the phase is none of experts
  int per_slot = 0, per_shared = 0;
  bool by_row = false;              // down
  bool gates_shared = false;        // the logit behind those of the experts weighs the shared one
  uint16_t shared_segment = 0;      // ProgramPhase::segment of the shared expert's input
  int width = 0, shared_width = 0;  // by_row: values of an input
  int64_t stride = 0;               // from expert to expert, in bytes
  Arrays shared[kMaxMatmuls];       // of the sets
  const uint8_t* shared_signs = nullptr;
  FormView shared_form;
  // Of the phase that chooses: the next one that does, or the number of all phases, and the last
  // one whose weights are known with this choice. 0: it does not choose.
  int next = 0, last = 0;
  RouteRule rule;
  const float* bias = nullptr;
  const float* logits = nullptr;  // exchanged: before the division by the input's norm
};

inline constexpr int kMostSlots = 64;  // chosen experts and the shared one
// Scores that a lane of the choosing warp has in registers, which kernels of steps have fewer of.
inline constexpr int kMostStepLaneExperts = 16;

// What a block knows of its choice, the shared expert being the last one.
struct alignas(16) Choice {
  float weights[kMostSlots];
  int32_t experts[kMostSlots];

  // With room for logits, the shared expert's too, and the scratch memory of the choice behind it.
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

// K-tiles of one matrix that lie one after the other.
struct ExpertRun {
  int set, slot;  // slot `chosen` is the shared expert's
  int first, count;

  bool operator==(const ExpertRun&) const = default;
};

// Those from k-tile `at` of the phase on, before k-tile `end`.
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

// The most runs that `count` neighbouring k-tiles are of.
constexpr int most_expert_runs(const ExpertPhase& e, int count) {
  const int least = e.per_shared > 0 && e.per_shared < e.per_slot ? e.per_shared : e.per_slot;
  return count < 2 ? count : (count - 2) / least + 2;
}

// Where a k-tile of an input stands: the how manieth of which slot, and the slot's first value.
struct InputSlot {
  int slot = -1;  // -1: the input has none
  int k_tile = 0, first = 0;
};

WALSH_EXPERT_LANE InputSlot input_slot(const ExpertPhase& e, int k_tile) {
  if (!e.by_row) return {-1, k_tile, 0};
  const bool shared = k_tile >= e.chosen * e.per_slot;
  const int slot = shared ? e.chosen : k_tile / e.per_slot;
  return {slot, k_tile - slot * e.per_slot, slot * e.width};
}

}  // namespace walsh::cuda
