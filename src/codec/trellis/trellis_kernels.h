// Runs the forward pass of the Viterbi algorithm over a bit-shift trellis, with one implementation
// per instruction set. All give the same bits, because every cost is a whole number.
//
// A class is the set of the 2^k states that agree in all bits but their first k: the states after
// which the same 2^k states may follow. Class p = lowest L - k bits, so state s leads on from class
// s >> k and belongs to class s mod 2^(L-k). The least cost of a class is all that the next step
// needs: costs of states never leave the registers, and no back pointers are kept, because the way
// back recomputes the 2^k costs of the one class that it meets per step.
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "codec/format.h"

namespace walsh::detail {

// Returns the parts of a unit: targets are rounded to 1 / target_parts of the unit of the levels
// and clamped to kLargestSearched units. Sums of the squares are below 2^24 on every path through a
// tile that is worth taking, so integers and float32 give the same costs in any order of
// operations.
constexpr int target_parts(const TrellisCode& code) {
  return code.rule == TrellisRule::bytes ? 2 : 4;
}
inline constexpr float kLargestSearched = 160;
// Returns the factor of targets before they are rounded.
constexpr float target_scale(const TrellisCode& code) {
  return static_cast<float>(target_parts(code)) / code.unit;
}

// Holds the levels of every state, and the same as the search looks for them: both weights of a
// state side by side, once in the order in which the vector versions of the forward pass read them,
// and once in that of the way back.
struct TrellisTable {
  static constexpr int kBlock = 16;  // A block has this many classes.
  static constexpr int kTilesAtOnce = 4;

  int step_bits = 0, state_bits = 0;
  int parts = 0;               // It is target_parts of the code.
  float scale = 0;             // It is target_scale of the code.
  AlignedArray<float> levels;  // Its shape is [2][2^state_bits].
  // It has the shape [class / 16][first bits of the state][class mod 16][2].
  AlignedArray<int16_t> ordered;
  AlignedArray<int16_t> by_class;  // Its shape is [class][first bits of the state][2].

  explicit TrellisTable(const TrellisCode& code);
  // Returns the whole number that the search uses in place of a target.
  int16_t searched_target(float x) const;
  int states() const { return 1 << state_bits; }
  int classes() const { return 1 << (state_bits - step_bits); }
  // Returns the level of weight t of a tile, given the states of its steps.
  float level(const uint16_t* of_steps, int t) const {
    return levels.data()[t % 2 * states() + of_steps[t / 2]];
  }

 private:
  void set_order();  // It computes the others from `levels`.
};

// Runs the forward pass of one to kTilesAtOnce tiles, x[tile][steps][2]. best[tile][0][class] are
// the costs to start with, at most kForbiddenCost, so that none overflows within a tile. Sets
// best[tile][t][class] for t = 1..steps, the least over paths of t states that begin after a class
// c and end in the class, of best[tile][0][c] + sum of squares of x - levels. There are at least 16
// classes.
inline constexpr int32_t kForbiddenCost = 1 << 29;
using TrellisForward = void (*)(const TrellisTable& table, const int16_t* const* x, int tiles,
                                int steps, int32_t* const* best);

void trellis_forward_ref(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                         int32_t* const* best);
void trellis_forward_avx2(const TrellisTable& table, const int16_t* const* x, int tiles, int steps,
                          int32_t* const* best);
void trellis_forward_avx512(const TrellisTable& table, const int16_t* const* x, int tiles,
                            int steps, int32_t* const* best);

// Returns the implementation for current_isa().
TrellisForward trellis_forward();

}  // namespace walsh::detail
