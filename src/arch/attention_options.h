// The options of softmax attention are one struct, which goes from the description of a layer over
// the step that executors run to the kernels of every device.
#pragma once

#include <cstdint>

namespace walsh {

// Returns the first position that the query at `position` sees (AttentionOptions). Kernels of GPUs
// call it with ints.
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

// Attention computes softmax(cap(scale * q K^T)) V over the positions that a query sees. Learned
// sinks are a vector of the layer and stand beside these options.
struct AttentionOptions {
  int64_t window = 0;   // positions that a query sees, itself included; 0: all
  int64_t chunk = 0;    // a query sees positions from the last multiple of this on; 0: no chunks
  float scale = 1;      // of the products of queries and keys
  float logit_cap = 0;  // c: logits become c tanh(logit / c); 0: no cap

  bool sees_all() const { return window == 0 && chunk == 0; }
  int64_t first_seen(int64_t position) const { return walsh::first_seen(window, chunk, position); }
};

}  // namespace walsh
