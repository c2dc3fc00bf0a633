// The forward pass of the Viterbi algorithm over a bit-shift trellis, one implementation per
// instruction set. All give the same bits: every cost is one fixed chain of float32 FMAs, or a
// whole number.
//
// A class is the set of the 2^k states that agree in all bits but their first k: the states after
// which the same 2^k states may follow. Class p = lowest L - k bits, so state s leads on from class
// s >> k and belongs to class s mod 2^(L-k). The least cost of a class is all that the next step
// needs: costs of states never leave the registers, and no back pointers are kept, because the way
// back recomputes the 2^k costs of the one class that it meets per step.
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "formats/format.h"

namespace walsh::detail {

// Costs of codes of one product are whole numbers: the search looks for targets in such parts of
// the unit of the levels, rounded and at most so many units large. Their sums are exact in float32
// below 2^24, which no path through a tile comes near that is worth taking, so integers and any
// order of operations give the same costs. 0: targets are searched as they are.
constexpr int whole_parts(const TrellisCode& code) {
  if (code.rule == TrellisRule::bytes) return 2;
  return code.rule == TrellisRule::quantiles ? 4 : 0;
}
inline constexpr float kLargestWholeTarget = 160;
// The factor of targets before they are rounded, or 0.
constexpr float target_scale(const TrellisCode& code) {
  return static_cast<float>(whole_parts(code)) / code.unit;
}

// The levels of every state: by state as they are, and as the search looks for them by state, in
// the order in which the vector versions of the forward pass read them, and in that of the way
// back.
struct TrellisTable {
  static constexpr int kBlock = 16;  // classes
  static constexpr int kTilesAtOnce = 4;

  int step_bits = 0, state_bits = 0, values = 0;
  int parts = 0;                 // whole_parts
  float scale = 0;               // target_scale
  AlignedArray<float> levels;    // [values][2^state_bits]
  AlignedArray<float> searched;  // the same in the units of the search
  AlignedArray<float> ordered;   // [class / 16][first bits of the state][values][class mod 16]
  AlignedArray<float> by_class;  // [class][values][first bits of the state]
  // For codes with whole costs: both weights of a state side by side, once in the order of
  // `ordered`, with the classes of a block innermost, and once in the order of tracing back,
  // [class][first bits].
  AlignedArray<int16_t> whole_ordered, whole_by_class;

  explicit TrellisTable(const TrellisCode& code);
  void set_order();  // computes the others from `levels`
  void set_whole_order();
  // Returns the value that the search uses in place of a target.
  float searched_target(float x) const;
  bool whole() const { return parts != 0; }
  int states() const { return 1 << state_bits; }
  int classes() const { return 1 << (state_bits - step_bits); }
  // Returns the level of weight t of a tile, given the states of its steps.
  float level(const uint16_t* of_steps, int t) const {
    return levels.data()[t % values * states() + of_steps[t / values]];
  }
};

// best[0][class]: costs to start with. Sets best[t][class] for t = 1..steps, the least over paths
// of t states that begin after a class c and end in the class, of best[0][c] + sum of squares of
// x[t][values] - levels. There are at least 16 classes.
using TrellisForward = void (*)(const TrellisTable& table, const float* x, int steps, float* best);

void trellis_forward_ref(const TrellisTable& table, const float* x, int steps, float* best);
void trellis_forward_avx2(const TrellisTable& table, const float* x, int steps, float* best);
void trellis_forward_avx512(const TrellisTable& table, const float* x, int steps, float* best);

// The same for kTilesAtOnce tiles, with x and best per tile. The bits of each tile are those of the
// single-tile function.
using TrellisForwardTiles = void (*)(const TrellisTable& table, const float* const* x, int steps,
                                     float* const* best);

void trellis_forward_tiles_ref(const TrellisTable& table, const float* const* x, int steps,
                               float* const* best);
void trellis_forward_tiles_avx2(const TrellisTable& table, const float* const* x, int steps,
                                float* const* best);
void trellis_forward_tiles_avx512(const TrellisTable& table, const float* const* x, int steps,
                                  float* const* best);

// The same of one to kTilesAtOnce tiles of a code with whole costs, x[tile][steps][2]: the numbers
// of trellis_forward_ref. From costs of at most kForbiddenWhole none overflows within a tile.
inline constexpr int32_t kForbiddenWhole = 1 << 29;
using WholeForward = void (*)(const TrellisTable& table, const int16_t* const* x, int tiles,
                              int steps, int32_t* const* best);

void whole_forward_ref(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                       int32_t* const* best);
void whole_forward_avx2(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                        int32_t* const* best);
void whole_forward_avx512(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                          int32_t* const* best);

// The implementations for current_isa().
TrellisForward trellis_forward();
TrellisForwardTiles trellis_forward_tiles();
WholeForward whole_forward();

}  // namespace walsh::detail
