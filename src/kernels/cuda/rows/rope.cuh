// Prepares heads for attention with one warp for each. Norm, rope and factors come first, then what
// the cache keeps of them. Bits equal those of the CPU, except for the order in which squares are
// added in double.
#pragma once

#include <cuda_fp16.h>

#include "base/half.h"
#include "kernels/cuda/attention/attention.h"

namespace walsh::cuda {

// A lane has at most this many pairs, for heads of up to 256 values and for larger ones.
inline constexpr int kPairs = 256 / 2 / 32, kWidePairs = kMaxHeadDim / 2 / 32;

// Says which columns a head's pairs have. Pair i of the first `turned` columns, which rope turns,
// is columns i and turned + i. The other pairs are columns turned + i and half + i.
struct HeadPairs {
  int half, turned;

  __device__ __forceinline__ int first(int i) const { return i < turned ? i : i + turned; }
  __device__ __forceinline__ int second(int i) const { return i + (i < turned ? turned : half); }
};

template <int N>
struct PairsOf {
  float a[N], b[N];
};
using Pairs = PairsOf<kPairs>;

template <int N = kPairs, typename Load>
__device__ __forceinline__ PairsOf<N> load_pairs(const float* x, const HeadPairs& pairs, int lane,
                                                 const Load& load) {
  PairsOf<N> v{};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int i = lane + 32 * j;
    if (i >= pairs.half) break;
    v.a[j] = load(x + pairs.first(i));
    v.b[j] = load(x + pairs.second(i));
  }
  return v;
}

template <int N = kPairs>
__device__ __forceinline__ PairsOf<N> load_pairs(const float* x, const HeadPairs& pairs, int lane) {
  return load_pairs<N>(x, pairs, lane, [](const float* p) { return *p; });
}

// Sums four values over a warp. Lane l gets the sum of value l / 8. Each is added in the order of
// warp_sums() of one.
__device__ __forceinline__ double warp_sums(const double (&x)[4], int lane) {
  const bool upper = (lane & 16) != 0, odd = (lane & 8) != 0;
  double a = upper ? x[2] : x[0], b = upper ? x[3] : x[1];
  a += __shfl_xor_sync(~0u, upper ? x[0] : x[2], 16);
  b += __shfl_xor_sync(~0u, upper ? x[1] : x[3], 16);
  double sum = odd ? b : a;
  sum += __shfl_xor_sync(~0u, odd ? a : b, 8);
#pragma unroll
  for (int distance = 4; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}

__device__ __forceinline__ double warp_sums(const double (&x)[1], int) {
  double sum = x[0];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}

// Applies an RMSNorm to `Count` heads, 1 or 4. Squares are summed in double, as everywhere. Four
// heads take as long as one for the square roots and divisions in double, which are the slowest
// part.
template <int Count, int N>
__device__ __forceinline__ void normalize(PairsOf<N> (&v)[Count], const float* gain, float eps,
                                          const HeadPairs& pairs, int lane) {
  double sums[Count] = {};
#pragma unroll
  for (int h = 0; h < Count; ++h) {
#pragma unroll
    for (int j = 0; j < N; ++j)
      sums[h] += static_cast<double>(v[h].a[j]) * static_cast<double>(v[h].a[j]) +
                 static_cast<double>(v[h].b[j]) * static_cast<double>(v[h].b[j]);
  }
  const double sum = warp_sums(sums, lane);
  const float inverse =
      static_cast<float>(1.0 / sqrt(sum / (2 * pairs.half) + static_cast<double>(eps)));
  const PairsOf<N> gains = load_pairs<N>(gain, pairs, lane);
#pragma unroll
  for (int h = 0; h < Count; ++h) {
    const float of_head = Count == 1 ? inverse : __shfl_sync(~0u, inverse, 32 / Count * h);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[h].a[j] = v[h].a[j] * of_head * gains.a[j];
      v[h].b[j] = v[h].b[j] * of_head * gains.b[j];
    }
  }
}

// Loads cosines (a) and sines (b) of a position for the turned pairs.
template <int N = kPairs>
__device__ __forceinline__ PairsOf<N> load_angles(const float* cos, const float* sin, int turned,
                                                  int lane) {
  PairsOf<N> angles{};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int i = lane + 32 * j;
    if (i >= turned) break;
    angles.a[j] = cos[i];
    angles.b[j] = sin[i];
  }
  return angles;
}

template <int N>
__device__ __forceinline__ void rotate(PairsOf<N>& v, const PairsOf<N>& angles, int turned,
                                       int lane) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (lane + 32 * j >= turned) break;
    const float a = v.a[j], b = v.b[j];
    v.a[j] = a * angles.a[j] - b * angles.b[j];
    v.b[j] = b * angles.a[j] + a * angles.b[j];
  }
}

template <int N>
__device__ __forceinline__ void multiply(PairsOf<N>& v, float factor) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    v.a[j] *= factor;
    v.b[j] *= factor;
  }
}

// Says what is done to heads of queries, of keys, or of values before attention.
struct HeadRule {
  const float* gain;  // It is [head_dim] of an RMSNorm, or null.
  float eps;
  const float* factors;    // [positions], or null
  bool is_turned = false;  // the norm is behind the rotation
};

// Returns whether the norms of a call are behind the rotation. The phases of a single launch have
// no such norms, so their calls have no such member and their kernel no code for it.
template <typename Call>
__device__ __forceinline__ bool norms_turned(const Call& call) {
  if constexpr (requires { call.norms_turned; }) return call.norms_turned;
  return false;
}

// These take the rules of queries and of keys from a RopeCall, or from what has the same members.
template <typename Call>
__device__ __forceinline__ HeadRule query_rule(const Call& call) {
  return {call.q_norm, call.eps, call.q_scale, norms_turned(call)};
}

template <typename Call>
__device__ __forceinline__ HeadRule key_rule(const Call& call) {
  return {call.k_norm, call.eps, nullptr, norms_turned(call)};
}

template <typename Call>
__device__ __forceinline__ HeadRule value_rule(const Call& call) {
  return {call.v_norm, call.v_eps, nullptr};
}

// Prepares heads of the row at `position`: norm and rope in the rule's order, then the factor. One
// warp calls it.
template <int Count, int N>
__device__ __forceinline__ void prepare_heads(PairsOf<N> (&v)[Count], const HeadRule& rule,
                                              const PairsOf<N>& angles, int64_t position,
                                              const HeadPairs& pairs, int lane,
                                              bool rotates = true) {
  const bool normed = rule.gain != nullptr;
  if (normed && !rule.is_turned) normalize(v, rule.gain, rule.eps, pairs, lane);
#pragma unroll
  for (int h = 0; h < Count; ++h)
    if (rotates) rotate(v[h], angles, pairs.turned, lane);
  if (normed && rule.is_turned) normalize(v, rule.gain, rule.eps, pairs, lane);
  if (rule.factors == nullptr) return;
  const float factor = rule.factors[position];
#pragma unroll
  for (int h = 0; h < Count; ++h)
    multiply(v[h], factor);
}

// Converts a key or a value to the cache's fp16. Values beyond its range become its largest number.
// A key that is NaN stays NaN, so that every result that sees its position is NaN. A value that is
// NaN becomes zero, because products with tiles of values multiply hidden positions by zero. If the
// row that it was computed from is NaN, its key is NaN, too.
__device__ __forceinline__ __half kept_half(float x, bool key) {
  if (x != x) return __float2half_rn(key ? x : 0.0f);
  return __float2half_rn(fminf(fmaxf(x, -kLargestHalf), kLargestHalf));
}

template <int N, typename T, typename Convert>
__device__ __forceinline__ void store_pairs(const PairsOf<N>& v, T* to, const HeadPairs& pairs,
                                            int lane, Convert convert) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int i = lane + 32 * j;
    if (i >= pairs.half) break;
    to[pairs.first(i)] = convert(v.a[j]);
    to[pairs.second(i)] = convert(v.b[j]);
  }
}

}  // namespace walsh::cuda
