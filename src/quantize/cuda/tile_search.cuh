// The kernel of tile_search.h. It also compiles for the host, where tests run it with fibers.
//
// A thread has a pair of neighbouring classes of kGroup tiles: 2 kGroup least costs in registers,
// over which it runs all first bits of the states. Each level is unpacked once for all tiles and
// each cost of the step before is read once for both classes, so that what remains is the chain of
// the search itself: two differences, two FMAs and a minimum per state and tile.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "quantize/cuda/tile_search.h"

namespace walsh::cuda::encoding {

inline constexpr float kForbiddenCost = 1e30f;  // as TileSearch has it

template <int kCount>
struct alignas(kCount >= 4 ? 16 : 4 * kCount) SomeFloats {
  float v[kCount];
};
template <int kBytes>
struct alignas(kBytes) SomeBytes {
  uint32_t word[kBytes / 4];
};

// What a block keeps in shared memory beside the levels, which come first.
template <int kGroup>
struct TileSearchMemory {
  float targets[kTileSize][kGroup];
  SomeFloats<2 * kGroup> least[kSearchThreads];  // where several threads share a pair
};

// unit * (byte - 128), rounded once like the level of the CPU.
__device__ __forceinline__ float unpack_level(uint32_t word, int byte, float unit) {
  // 2^23 + byte as a float.
  const uint32_t bits = __byte_perm(word, 0x4b000000u, 0x7540u + static_cast<uint32_t>(byte));
  return unit * (std::bit_cast<float>(bits) - 8388736.0f);
}

template <int kValues, int kGroup>
class TileSearchBlock {
 public:
  using Costs = SomeFloats<kGroup>;
  using Pair = SomeFloats<2 * kGroup>;

  __device__ __forceinline__ TileSearchBlock(const TileSearchArgs& args, unsigned char* shared)
      : args_(args),
        levels_(shared),
        memory_(reinterpret_cast<TileSearchMemory<kGroup>*>(
            shared + (static_cast<int64_t>(kValues) << args.state_bits))),
        best_(args.best +
              static_cast<int64_t>(blockIdx.x) * (kSteps + 1) * args.classes() * kGroup),
        classes_(args.classes()),
        pairs_(classes_ / 2),
        fan_(1 << args.step_bits),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void run() {
    load_levels();
    const int64_t step = static_cast<int64_t>(gridDim.x) * kGroup;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * kGroup; first < args_.tiles;
         first += step) {
      load_targets(first);
      search(first);
    }
  }

 private:
  static constexpr int kSteps = kTileSize / kValues;
  static constexpr int kWarps = kSearchThreads / 32;
  static_assert(kGroup <= kWarps);

  __device__ __forceinline__ void load_levels() {
    using Line = SomeBytes<16>;
    const int lines = (kValues << args_.state_bits) / 16;
    for (int i = thread_; i < lines; i += kSearchThreads)
      reinterpret_cast<Line*>(levels_)[i] = reinterpret_cast<const Line*>(args_.levels)[i];
  }

  // Tiles behind the last one are zeros.
  __device__ __forceinline__ void load_targets(int64_t first) {
    __syncthreads();  // those of the tiles before are not needed any more
    for (int i = thread_; i < kGroup * kTileSize; i += kSearchThreads) {
      const int tile = i / kTileSize;
      const float* from = args_.targets + (first + tile) * kTileSize;
      memory_->targets[i % kTileSize][tile] = first + tile < args_.tiles ? from[i % kTileSize] : 0;
    }
  }

  __device__ __forceinline__ void search(int64_t first) {
    const int tile = thread_ / 32;
    const bool traced = tile < kGroup && first + tile < args_.tiles;
    const int around = 2 * args_.seam / kValues;
    for (int i = thread_; i < classes_ * kGroup; i += kSearchThreads)
      best_[i] = 0;
    forward(kTileSize - args_.seam, around);
    int seam = 0;
    if (traced) {
      const int last = least_class(tile, around);
      seam = trace(tile, kTileSize - args_.seam, around, around / 2 - 1, last, nullptr);
    }
    __syncthreads();
    for (int i = thread_; i < classes_ * kGroup; i += kSearchThreads)
      best_[i] = kForbiddenCost;
    __syncthreads();
    if (traced && thread_ % 32 == 0) best_[seam * kGroup + tile] = 0;
    forward(0, kSteps);
    if (traced) trace(tile, 0, kSteps, 0, seam, args_.states + (first + tile) * kTileSize);
  }

  __device__ __forceinline__ float* row(int step) {
    return best_ + static_cast<int64_t>(step) * classes_ * kGroup;
  }

  // The steps of the weights from `begin` on, cyclically.
  __device__ __forceinline__ void forward(int begin, int steps) {
    __syncthreads();
    const int most = fan_ / 4, wanted = kSearchThreads / pairs_;
    const int shares = wanted < 1 ? 1 : wanted < most ? wanted : most;
    for (int t = 0; t < steps; ++t) {
      Costs targets[kValues];
#pragma unroll
      for (int v = 0; v < kValues; ++v) {
        const int at = (begin + t * kValues + v) % kTileSize;
        targets[v] = *reinterpret_cast<const Costs*>(memory_->targets[at]);
      }
      const auto* from = reinterpret_cast<const unsigned char*>(row(t));
      auto* to = reinterpret_cast<Pair*>(row(t + 1));
      if (shares == 1) {
        for (int pair = thread_; pair < pairs_; pair += kSearchThreads)
          to[pair] = least_costs(targets, from, pair, 0, fan_);
      } else {
        const int share = thread_ / pairs_, count = fan_ / shares;
        if (share < shares) {
          memory_->least[thread_] =
              least_costs(targets, from, thread_ % pairs_, share * count, count);
        }
        __syncthreads();
        for (int pair = thread_; pair < pairs_; pair += kSearchThreads)
          to[pair] = joined(pair, shares);
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ Pair joined(int pair, int shares) const {
    Pair least = memory_->least[pair];
    for (int share = 1; share < shares; ++share) {
      const Pair other = memory_->least[share * pairs_ + pair];
#pragma unroll
      for (int i = 0; i < 2 * kGroup; ++i)
        least.v[i] = fminf(least.v[i], other.v[i]);
    }
    return least;
  }

  // Of a pair of classes, over `count` first bits from `first` on.
  __device__ __forceinline__ Pair least_costs(const Costs (&targets)[kValues],
                                              const unsigned char* from, int pair, int first,
                                              int count) const {
    using Quad = SomeBytes<8 * kValues>;
    Pair least;
#pragma unroll
    for (int i = 0; i < 2 * kGroup; ++i)
      least.v[i] = INFINITY;
    for (int quad = first / 4; quad < (first + count) / 4; ++quad) {
      const Quad levels = reinterpret_cast<const Quad*>(levels_)[quad * pairs_ + pair];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto state = static_cast<uint32_t>((4 * quad + i) * classes_ + 2 * pair);
        const uint32_t offset = (state >> args_.step_bits) * static_cast<uint32_t>(sizeof(Costs));
        const Costs before = *reinterpret_cast<const Costs*>(from + offset);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float level[kValues];
#pragma unroll
          for (int v = 0; v < kValues; ++v) {
            const int byte = (2 * i + c) * kValues + v;
            level[v] = unpack_level(levels.word[byte / 4], byte % 4, args_.unit);
          }
          add(targets, level, before, least, c);
        }
      }
    }
    return least;
  }

  __device__ __forceinline__ static void add(const Costs (&targets)[kValues],
                                             const float (&level)[kValues], const Costs& before,
                                             Pair& least, int c) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      float cost = before.v[i];
#pragma unroll
      for (int v = 0; v < kValues; ++v) {
        const float d = targets[v].v[i] - level[v];
        cost = fmaf(d, d, cost);
      }
      float& to = least.v[c * kGroup + i];
      to = fminf(to, cost);
    }
  }

  // The first of the least costs after `steps` steps, by a warp.
  __device__ __forceinline__ int least_class(int tile, int steps) {
    const float* costs = row(steps) + tile;
    float least = INFINITY;
    int which = 0;
    for (int p = thread_ % 32; p < classes_; p += 32) {
      const float cost = costs[static_cast<int64_t>(p) * kGroup];
      if (cost < least) {
        least = cost;
        which = p;
      }
    }
    return first_least(least, which);
  }

  // Over the lanes of a warp: `which` of the least cost, the lowest one of equal costs, which are
  // not negative.
  __device__ __forceinline__ static int first_least(float cost, int which) {
    const int bits = std::bit_cast<int>(cost);
    const int least = __reduce_min_sync(0xffffffffu, bits);
    return __reduce_min_sync(0xffffffffu, bits == least ? which : INT32_MAX);
  }

  // The least-cost path of a tile whose last state is in class `p`, back to step `end`: the class
  // of the state there. By a warp.
  __device__ __forceinline__ int trace(int tile, int begin, int steps, int end, int p,
                                       uint16_t* states) {
    const int lane = thread_ % 32;
    int state = p;
    for (int t = steps - 1; t >= end; --t) {
      const float* before = row(t) + tile;
      float least = INFINITY;
      int which = 0;
      for (int first = lane; first < fan_; first += 32) {
        const int from = (first * classes_ + p) >> args_.step_bits;
        const float cost = cost_of(tile, begin, t, first, p, before[from * kGroup]);
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

  // With the roundings of TileSearch::trace, which are not those of the forward pass.
  __device__ __forceinline__ float cost_of(int tile, int begin, int t, int first, int p,
                                           float cost) const {
    const int at = ((first / 4 * pairs_ + p / 2) * 4 + first % 4) * 2 + p % 2;
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const float level = unpack_level(levels_[at * kValues + v], 0, args_.unit);
      const float d = memory_->targets[(begin + t * kValues + v) % kTileSize][tile] - level;
      cost = cost + d * d;
    }
    return cost;
  }

  const TileSearchArgs& args_;
  unsigned char* levels_;
  TileSearchMemory<kGroup>* memory_;
  float* best_;
  int classes_, pairs_, fan_, thread_;
};

}  // namespace walsh::cuda::encoding
