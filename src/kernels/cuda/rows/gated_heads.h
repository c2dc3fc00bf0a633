// Applies gates to the outputs of mixers, which are gated attention, and delta nets, which also
// norm heads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

// Describes gates for rows of heads with `dim` values each:
//   x[t][h][..] *= 1 / (1 + e^-gate), or with a gain
//   x[t][h][..] = norm(x[t][h]) * gain * silu(gate), or if the gate comes first
//   x[t][h][..] = norm(x[t][h] * silu(gate)) * gain[h]
struct HeadGates {
  // Head h of row t is at gate + t * ld + h * head_ld; null: there are no gates.
  const float* gate = nullptr;
  int64_t ld = 0, head_ld = 0;
  // It is [dim], or [heads][dim] if the gate comes first, a weight; or null.
  const float* gain = nullptr;
  float eps = 0;
  int dim = 0;
  bool first = false;

  bool present() const { return gate != nullptr; }
};

// Applies gates in place to `heads` heads of m rows [m][heads * dim]. Squares are added in double.
void gate_heads(float* x, const HeadGates& gates, int64_t m, int heads, Stream stream);

// Returns whether prepare() can apply gates of these heads. For that, a head must lie in one k-tile
// and consist of whole lanes; gates do not come first.
bool can_prepare(const HeadGates& gates);
// Does what prepare() does, with gates applied on the way, and leaves x unchanged. The source must
// have neither `up` nor a gain. Bits equal those of gate_heads() and prepare(), except for the
// order in which squares are added.
void prepare(const InputSource& source, const HeadGates& gates, std::span<const InputForm> forms,
             int64_t m, Stream stream);

// Copies the first half of every head of `from`, [m][heads][2][dim], to q, [m][heads][dim].
void take_queries(const float* from, int64_t m, int heads, int dim, float* q, Stream stream);

}  // namespace walsh::cuda
