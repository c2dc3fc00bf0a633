// Gates of what mixers give: attention with gates beside its queries, delta nets with a norm of
// each head.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

// Gates of rows of heads, which are `dim` values each, side by side:
//   x[t][h][..] *= 1 / (1 + e^-gate), or with a gain
//   x[t][h][..] = norm(x[t][h]) * gain * silu(gate)
struct HeadGates {
  const float* gate = nullptr;  // of head h of row t: gate + t * ld + h * head_ld; null: none
  int64_t ld = 0, head_ld = 0;
  const float* gain = nullptr;  // [dim] or null; a weight
  float eps = 0;
  int dim = 0;

  bool present() const { return gate != nullptr; }
};

// In place, for `heads` heads of m rows [m][heads * dim]. Squares are added in double.
void gate_heads(float* x, const HeadGates& gates, int64_t m, int heads, Stream stream);

// Whether gates of these heads can be a part of preparing inputs: a head lies in one k-tile and has
// whole lanes.
bool can_prepare(const HeadGates& gates);
// prepare() of rows that have such gates, which x does not get; the source has neither `up` nor a
// gain. Bits are those of gate_heads() and prepare() but for the order in which squares are added.
void prepare(const InputSource& source, const HeadGates& gates, std::span<const InputForm> forms,
             int64_t m, Stream stream);

// Of every head of `from`, [m][heads][2][dim], the first values to q, [m][heads][dim].
void take_queries(const float* from, int64_t m, int heads, int dim, float* q, Stream stream);

}  // namespace walsh::cuda
