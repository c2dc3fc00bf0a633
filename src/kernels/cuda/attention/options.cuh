// Gives the options of attention their meaning in kernels: which positions a query sees, how
// products become logits, and which share learned sinks have. Softmaxes are in base 2.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/cuda/attention/args.h"
#include "kernels/cuda/attention/fragments.cuh"

namespace walsh::cuda {

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Returns the first position that the query at `position` sees.
__device__ __forceinline__ int first_seen(const AttentionRule& rule, int position) {
  return walsh::first_seen(rule.window, rule.chunk, position);
}

// Returns whether queries see all positions before them.
__device__ __forceinline__ bool sees_all(const AttentionRule& rule) {
  return rule.window == 0 && rule.chunk == 0;
}

// Applies the cap to a product. The tanh is off by at most 2^-21.
__device__ __forceinline__ float capped(const LogitCap& cap, float s) {
  const float inverse = quick_reciprocal(power_of_two(cap.power * s) + 1.0f);
  return __fmaf_rn(-2.0f * cap.largest, inverse, cap.largest);
}

// Applies the cap to an array of products, of any rank. A kernel has a separate instance for it,
// because even a branch around it would cost all other calls registers.
template <bool Capped, typename Products>
__device__ __forceinline__ void cap_logits(const AttentionRule& rule, Products& s) {
  if constexpr (!Capped) {
    return;
  } else if constexpr (std::is_array_v<Products>) {
#pragma unroll
    for (size_t i = 0; i < std::extent_v<Products>; ++i)
      cap_logits<true>(rule, s[i]);
  } else {
    s = capped(rule.cap, s);
  }
}

// Returns what is subtracted from exponents if the largest logit is `largest`. It avoids inf - inf
// for rows that have seen nothing yet.
__device__ __forceinline__ float exponent_base(float largest, float scale) {
  return largest == kNothing ? 0.0f : largest * scale;
}

// Returns what a head's sink adds to the total of its softmax, whose largest logit is `largest`.
__device__ __forceinline__ float sink_weight(const AttentionRule& rule, int head, float largest) {
  if (rule.sinks == nullptr) return 0.0f;
  return power_of_two(__fmaf_rn(rule.sinks[head], kLog2E, -exponent_base(largest, rule.scale)));
}

}  // namespace walsh::cuda
