// This is the kernel of tile_search.h with costs in float32.
//
// A thread has two neighbouring classes of kGroup tiles: it keeps 2 kGroup least costs in registers
// and iterates over all first bits of the states. Each level is unpacked once for all tiles, and
// each cost of the previous step is read once for both classes. What remains is the dependency
// chain of the search itself: two differences, two FMAs and a minimum per state and tile. Costs are
// in units of the levels here, not in halves of them, so they are exactly a quarter of the CPU's.
#pragma once

#include "codec/trellis/cuda/tile_block.cuh"

namespace walsh::cuda::encoding {

// Lies in the shared memory of a block after the levels.
template <int kGroup>
struct TileSearchMemory {
  float targets[kTileSize][kGroup];
  SomeFloats<2 * kGroup> least[kSearchThreads];  // It is used if several threads share a pair.
};

// Levels are 2^15 + byte. If 2^15 is added to targets as well, differences of multiples of one half
// are exact.
inline constexpr float kWholeLift = 32768;
__device__ __forceinline__ float lifted_level(uint32_t word, int byte) {
  return std::bit_cast<float>(
      __byte_perm(word, 0x47000000u, 0x7404u + 16 * static_cast<uint32_t>(byte)));
}

template <int kGroup>
class TileSearchBlock : public TileBlock<TileSearchBlock<kGroup>, float, kGroup> {
 public:
  using Base = TileBlock<TileSearchBlock<kGroup>, float, kGroup>;
  using Costs = SomeFloats<kGroup>;
  using Pair = SomeFloats<2 * kGroup>;
  static constexpr int kValues = 2;
  static constexpr float kForbidden = 1e30f;

  __device__ __forceinline__ TileSearchBlock(const TileSearchArgs& args, unsigned char* shared)
      : Base(args),
        levels_(shared),
        memory_(reinterpret_cast<TileSearchMemory<kGroup>*>(
            shared + (static_cast<int64_t>(kValues) << args.state_bits))),
        pairs_(classes_ / 2) {}

  __device__ __forceinline__ void load() {
    using Line = SomeBytes<16>;
    const int lines = (kValues << args_.state_bits) / 16;
    for (int i = thread_; i < lines; i += kSearchThreads)
      reinterpret_cast<Line*>(levels_)[i] = static_cast<const Line*>(args_.levels)[i];
  }

  __device__ __forceinline__ void load_targets(int64_t first) {
    for (int i = thread_; i < kGroup * kTileSize; i += kSearchThreads) {
      const int tile = i / kTileSize;
      const float* from = args_.targets + (first + tile) * kTileSize;
      memory_->targets[i % kTileSize][tile] =
          first + tile < args_.tiles ? target(from[i % kTileSize]) : target(0);
    }
  }

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

  __device__ __forceinline__ float cost_of(int tile, int at, int state, float cost) const {
    const int first = state >> (args_.state_bits - args_.step_bits), p = state & (classes_ - 1);
    const int level_at = ((first / 4 * pairs_ + p / 2) * 4 + first % 4) * 2 + p % 2;
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const float level = lifted_level(levels_[level_at * kValues + v], 0);
      const float d = memory_->targets[at + v][tile] - level;
      cost = cost + d * d;
    }
    return cost;
  }

 private:
  __device__ __forceinline__ float target(float x) const {
    return search_target(args_, x) / args_.target_parts + (kWholeLift + 128);
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

  // Computes the least costs of a pair of classes over `count` first bits from `first` on.
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
            level[v] = lifted_level(levels.word[byte / 4], byte % 4);
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

  using Base::args_;
  using Base::classes_;
  using Base::fan_;
  using Base::row;
  using Base::thread_;

  unsigned char* levels_;
  TileSearchMemory<kGroup>* memory_;
  int pairs_;
};

}  // namespace walsh::cuda::encoding
