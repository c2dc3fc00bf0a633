// Has what the kernels of tile_search.h share: the order of the two searches of a tile, tracing
// back, and the memory in between. The code also compiles for the host, where tests run it with
// fibers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "codec/trellis/cuda/tile_search.h"
#include "codec/trellis/trellis_kernels.h"

namespace walsh::cuda::encoding {

template <int kCount>
struct alignas(kCount >= 4 ? 16 : 4 * kCount) SomeFloats {
  float v[kCount];
};
template <int kBytes>
struct alignas(kBytes) SomeBytes {
  uint32_t word[kBytes / 4];
};

// Returns the value that the search looks for in place of x (detail::target_scale).
__device__ __forceinline__ float search_target(const TileSearchArgs& args, float x) {
  const float whole = rintf(x * args.target_scale);
  const float most = detail::kLargestSearched * args.target_parts;
  return whole < -most ? -most : most < whole ? most : whole;
}

// Converts costs to integers of the same order.
__device__ __forceinline__ int ordered(float cost) {
  return std::bit_cast<int>(cost);  // Costs are not negative.
}
__device__ __forceinline__ int ordered(int cost) {
  return cost;
}

// Takes kGroup tiles at a time through all states. `Search` derives from it and has
//   load()                        loads what all tiles need; called before anything else
//   load_targets(first)           loads the targets of the tiles from `first` on, and zeros after
//                                 the last one
//   forward(begin, steps)         computes rows 1 to `steps` of the costs from row 0, over the
//                                 weights from `begin` on, cyclically; begins and ends with
//                                 __syncthreads
//   cost_of(tile, at, state, c)   returns c plus the cost of the state for the weights from `at` on
// and kForbidden, a cost above all others.
template <class Search, class Cost, int kGroup>
class TileBlock {
 public:
  __device__ __forceinline__ void run() {
    self().load();
    const int64_t step = static_cast<int64_t>(gridDim.x) * kGroup;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * kGroup; first < args_.tiles;
         first += step) {
      __syncthreads();  // The targets of the previous tiles are no longer needed.
      self().load_targets(first);
      search(first);
    }
  }

 protected:
  static constexpr int kValues = 2, kSteps = kTileSize / kValues;
  static constexpr int kWarps = kSearchThreads / 32;
  static_assert(kGroup <= kWarps);

  __device__ __forceinline__ explicit TileBlock(const TileSearchArgs& args)
      : args_(args),
        classes_(args.classes()),
        fan_(1 << args.step_bits),
        thread_(static_cast<int>(threadIdx.x)),
        best_(static_cast<Cost*>(args.best) +
              static_cast<int64_t>(blockIdx.x) * (kSteps + 1) * classes_ * kGroup) {}

  // Returns the costs [classes][kGroup] after `step` steps.
  __device__ __forceinline__ Cost* row(int step) const {
    return best_ + static_cast<int64_t>(step) * classes_ * kGroup;
  }

  const TileSearchArgs& args_;
  int classes_, fan_, thread_;

 private:
  __device__ __forceinline__ Search& self() { return static_cast<Search&>(*this); }

  __device__ __forceinline__ void search(int64_t first) {
    const int tile = thread_ / 32;
    const bool traced = tile < kGroup && first + tile < args_.tiles;
    const int around = 2 * args_.seam / kValues;
    for (int i = thread_; i < classes_ * kGroup; i += kSearchThreads)
      best_[i] = 0;
    self().forward(kTileSize - args_.seam, around);
    int seam = 0;
    if (traced) {
      const int last = least_class(tile, around);
      seam = trace(tile, kTileSize - args_.seam, around, around / 2 - 1, last, nullptr);
    }
    __syncthreads();
    for (int i = thread_; i < classes_ * kGroup; i += kSearchThreads)
      best_[i] = Search::kForbidden;
    __syncthreads();
    if (traced && thread_ % 32 == 0) best_[seam * kGroup + tile] = 0;
    self().forward(0, kSteps);
    if (traced) trace(tile, 0, kSteps, 0, seam, args_.states + (first + tile) * kTileSize);
  }

  // Returns the first of the classes with the least cost after `steps` steps. A warp computes it.
  __device__ __forceinline__ int least_class(int tile, int steps) {
    const Cost* costs = row(steps) + tile;
    int least = INT32_MAX, which = 0;
    for (int p = thread_ % 32; p < classes_; p += 32) {
      const int cost = ordered(costs[static_cast<int64_t>(p) * kGroup]);
      if (cost < least) {
        least = cost;
        which = p;
      }
    }
    return first_least(least, which);
  }

  // Returns `which` of the lane that has the least cost in a warp, or of the lowest such lane.
  __device__ __forceinline__ static int first_least(int cost, int which) {
    const int least = __reduce_min_sync(0xffffffffu, cost);
    return __reduce_min_sync(0xffffffffu, cost == least ? which : INT32_MAX);
  }

  // Traces the least-cost path of a tile whose last state is in class `p` back to step `end`, and
  // returns the class of the state there. A warp calls it.
  __device__ __forceinline__ int trace(int tile, int begin, int steps, int end, int p,
                                       uint16_t* states) {
    const int lane = thread_ % 32;
    int state = p;
    for (int t = steps - 1; t >= end; --t) {
      const Cost* before = row(t) + tile;
      const int at = (begin + t * kValues) % kTileSize;
      int least = INT32_MAX, which = 0;
      for (int first = lane; first < fan_; first += 32) {
        state = first * classes_ + p;
        const Cost from = before[(state >> args_.step_bits) * kGroup];
        const int cost = ordered(self().cost_of(tile, at, state, from));
        if (cost < least) {
          least = cost;
          which = first;
        }
      }
      state = first_least(least, which) * classes_ + p;
      if (states != nullptr && lane == 0) states[t] = static_cast<uint16_t>(state);
      p = state >> args_.step_bits;
    }
    return state & (classes_ - 1);
  }

  Cost* best_;
};

}  // namespace walsh::cuda::encoding
