// Softmax attention has its options in one struct, which goes from a layer's description through
// the steps that executors run to the kernels of every device. What is done to heads before is in
// another, which goes as far as the executors.
#pragma once

#include <cstdint>

namespace walsh {

// Returns the first position that the query at `position` sees (AttentionOptions). GPU kernels call
// it with ints.
template <typename T>
constexpr T first_seen(T window, T chunk, T position) {
  T first = 0;
  if (window > 0 && position >= window) first = position + 1 - window;
  if (chunk > 0) {
    const T begin = position - position % chunk;
    if (begin > first) first = begin;
  }
  return first;
}

// Attention computes softmax(cap(scale * q K^T)) V over the positions that a query sees. Sinks are
// not among the options, because they are a vector of the layer.
struct AttentionOptions {
  int64_t window = 0;  // A query sees this many positions, itself included; 0: all.
  // A query sees positions from the last multiple of this on; 0: there are no chunks.
  int64_t chunk = 0;
  float scale = 1;      // It multiplies the products of queries and keys.
  float logit_cap = 0;  // With a cap c, logits become c tanh(logit / c); 0: no cap.

  bool sees_all() const { return window == 0 && chunk == 0; }
  int64_t first_seen(int64_t position) const { return walsh::first_seen(window, chunk, position); }
};

// Says what is done to queries, keys and values before attention, besides norms with gains, rope
// and gates.
struct HeadOptions {
  // If true, norms of queries and keys follow rope instead of preceding it.
  bool norms_turned = false;
  // After rope, queries and keys are divided by sqrt(mean square of their head + this); 0: they are
  // not.
  float unit_eps = 0;
  // Values are divided by sqrt(mean square of their head + this); 0: they are not.
  float value_eps = 0;
  // Queries at position p are multiplied by 1 + growth log(1 + floor((p + 1) / growth_step)).
  float growth = 0;
  int64_t growth_step = 1;
};

}  // namespace walsh
