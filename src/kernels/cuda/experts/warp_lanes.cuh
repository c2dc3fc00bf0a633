// Lets a warp choose experts, and counts over the threads of a block.
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/experts.h"

namespace walsh::cuda {

// Presents a warp as lanes (lanes.h).
struct WarpLanes {
  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ __forceinline__ int count() { return 32; }
  static __device__ __forceinline__ void sync() { __syncwarp(); }
  static __device__ __forceinline__ float sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      x += __shfl_xor_sync(~0u, x, distance);
    return x;
  }
  static __device__ __forceinline__ float largest(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
  }
  static __device__ __forceinline__ int least(int i) {
    return __reduce_min_sync(~0u, i);
  }
  static __device__ __forceinline__ uint32_t most(uint32_t key) {
    return __reduce_max_sync(~0u, key);
  }
};

// Chooses the experts of a row with one warp; load(expert) returns a logit. There are at most 32 *
// Most experts; each lane keeps as few scores in registers as suffice.
template <int Most = kMostLaneExperts, int Each = 4, typename Load>
__device__ __forceinline__ void route_by_warp(const RouteRule& rule, const Load& load,
                                              const float* bias, const RouteScratch& scratch,
                                              int32_t* choices, float* weights) {
  if constexpr (Each < Most) {
    if (rule.experts > 32 * Each)
      return route_by_warp<Most, 2 * Each>(rule, load, bias, scratch, choices, weights);
  }
  route_row<Each>(WarpLanes(), rule, load, bias, scratch, choices, weights);
}

// Chooses the experts of row `row` of a call.
template <typename Load>
__device__ __forceinline__ void route_by_warp(const RouteCall& call, int64_t row,
                                              const RouteScratch& scratch, const Load& load) {
  const int64_t at = row * call.rule.chosen;
  route_by_warp(call.rule, load, call.bias, scratch, call.choices + at, call.weights + at);
}

// Assigns slots in the order of the row's choices, which are in the scratch.
__device__ __forceinline__ void keep_order_by_warp(const RouteCall& call, int64_t row,
                                                   const RouteScratch& scratch,
                                                   const SlotArrays& slots) {
  const int chosen = call.rule.chosen;
  for (int k = WarpLanes::index(); k < chosen; k += 32)
    keep_order(static_cast<int>(row) * chosen + k, chosen, scratch.chosen[k], slots);
}

// Lets a single thread take the role of all lanes.
struct SingleLane {
  static __device__ __forceinline__ int index() { return 0; }
  static __device__ __forceinline__ int count() { return 1; }
  static __device__ __forceinline__ int total(int x) { return x; }
  static __device__ __forceinline__ Rank rank(bool flag) { return {0, flag ? 1 : 0}; }
};

// Returns the sum of `own` over the threads before this one, and in `total` the sum over all.
__device__ __forceinline__ int count_before(int own, int& total) {
  constexpr int kMostWarps = 32;
  __shared__ int counts[kMostWarps];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  int up_to = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(~0u, up_to, distance);
    up_to += lane >= distance ? other : 0;
  }
  if (lane == 31) counts[warp] = up_to;
  __syncthreads();
  int before = up_to - own;
  total = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) {
    before += w < warp ? counts[w] : 0;
    total += counts[w];
  }
  return before;
}

}  // namespace walsh::cuda
