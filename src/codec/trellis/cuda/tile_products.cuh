// This is the kernel of tile_search.h for codes whose levels are sums of bytes of a product: costs
// are whole numbers (detail::target_scale), and tensor cores make them.
//
// With targets X in half units, half of (X - 2 l)^2 is, up to what all states of a step share, 2
// l^2 - 2 X l, and l + 127 is the sum of two bytes of the state's product. An m16n8k16 product
// takes eight classes with two first bits as its rows and eight tiles as its columns: of the 16
// bytes of a row, lanes 0 to 2 of four have the two sums twice, whose factors are six equal shares
// of -2 X, and lane 3 the squares. It starts from the costs of the step before. A warp has 64
// neighbouring classes of all 16 tiles: 32 least costs per lane, for which it runs the pairs of
// first bits.
#pragma once

#include "codec/trellis/cuda/byte_product.cuh"
#include "codec/trellis/cuda/tile_block.cuh"

namespace walsh::cuda::encoding {

inline constexpr int kProductTiles = 16;    // A block has this many tiles.
inline constexpr int kProductClasses = 64;  // A warp takes this many at a time.

struct TileProductsMemory {
  int16_t targets[kTileSize][kProductTiles];
  // Where several warps share classes, it is [][cost][lane].
  int32_t least[kSearchThreads / 32][32][32];
};

template <int kStepBits>
class TileProductsBlock : public TileBlock<TileProductsBlock<kStepBits>, int32_t, kProductTiles> {
 public:
  using Base = TileBlock<TileProductsBlock<kStepBits>, int32_t, kProductTiles>;
  static constexpr int32_t kForbidden = 1 << 29;

  __device__ __forceinline__ TileProductsBlock(const TileSearchArgs& args, unsigned char* shared)
      : Base(args),
        squares_(reinterpret_cast<uint16_t*>(shared)),
        memory_(reinterpret_cast<TileProductsMemory*>(
            shared + (static_cast<int64_t>(2) << args.state_bits))),
        lane_(thread_ % 32),
        warp_(thread_ / 32) {}

  __device__ __forceinline__ void load() {
    using Line = SomeBytes<16>;
    for (int i = thread_; i < (2 << args_.state_bits) / 16; i += kSearchThreads)
      reinterpret_cast<Line*>(squares_)[i] = static_cast<const Line*>(args_.levels)[i];
  }

  __device__ __forceinline__ void load_targets(int64_t first) {
    for (int i = thread_; i < kProductTiles * kTileSize; i += kSearchThreads) {
      const int tile = i / kTileSize;
      const float* from = args_.targets + (first + tile) * kTileSize;
      memory_->targets[i % kTileSize][tile] = static_cast<int16_t>(
          first + tile < args_.tiles ? search_target(args_, from[i % kTileSize]) : 0);
    }
  }

  __device__ __forceinline__ void forward(int begin, int steps) {
    __syncthreads();
    const int chunks = classes_ / kProductClasses, wanted = kWarps / chunks, most = kFan / 2;
    const int shares = wanted < 1 ? 1 : wanted < most ? wanted : most;
    const int share = shares == 1 ? 0 : warp_ / chunks;
    for (int t = 0; t < steps; ++t) {
      uint32_t factors[2];
      set_factors((begin + 2 * t) % kTileSize, factors);
      for (int chunk = shares == 1 ? warp_ : warp_ % chunks; chunk < chunks; chunk += kWarps) {
        Least least;
        if (share < shares) {
          const int count = kFan / shares;
          add_up(factors, row(t), chunk * kProductClasses, share * count, count, least);
        }
        if (shares > 1) join(least, share, chunks, shares);
        if (share == 0) store(least, row(t + 1), chunk * kProductClasses);
      }
      __syncthreads();
    }
  }

  // Computes the cost in the same way as the products.
  __device__ __forceinline__ int32_t cost_of(int tile, int at, int state, int32_t cost) const {
    const uint32_t product = static_cast<uint32_t>(state) * args_.multiplier;
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int level =
          static_cast<int>((product >> (8 * v) & 127) + (product >> (8 * v + 16) & 127)) - 127;
      cost += 2 * level * (level - memory_->targets[at + v][tile]);
    }
    return cost;
  }

 private:
  static constexpr int kFan = 1 << kStepBits;
  // The 64 classes of a warp follow this many different classes with the same first bits.
  static constexpr int kParts = kFan < kProductClasses ? kProductClasses / kFan : 1;

  struct Least {
    int32_t v[8][2][2];  // Its shape is [class / 8][tile / 8][tile mod 2].
  };

  // Sets the words of operand B for the tiles 0 to 7 and 8 to 15.
  __device__ __forceinline__ void set_factors(int at, uint32_t (&factors)[2]) const {
    constexpr int kShares = 6, kLift = 128 * kShares;
    const int part = lane_ % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int tile = 8 * n + lane_ / 4;
      int low[2], rest[2];
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int lifted = kLift - 2 * memory_->targets[at + v][tile];
        low[v] = lifted / kShares;
        rest[v] = lifted - low[v] * kShares;
      }
      const auto of = [&](int v, int share) {
        return static_cast<uint32_t>(low[v] - 128 + (share < rest[v] ? 1 : 0)) & 0xffu;
      };
      const int share = 2 * part;
      factors[n] = part == 3 ? 2u | 127u << 8 | 127u << 16
                             : of(0, share) | of(1, share) << 8 | of(0, share + 1) << 16 |
                                   of(1, share + 1) << 24;
    }
  }

  // Adds up `count` first bits from `begin` on, both even, for 64 classes from `classes` on.
  __device__ __forceinline__ void add_up(const uint32_t (&factors)[2], const int32_t* from,
                                         int classes, int begin, int count, Least& least) const {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      least.v[i / 4][i / 2 % 2][i % 2] = INT32_MAX;
    const int part = lane_ % 4, line = lane_ / 4;
    // These select bytes for a lane: the sum twice (from the upper half), or the lower byte and
    // twice the upper byte of the square.
    const uint32_t pick[2] = {part < 3 ? 0x3232u : 0x5554u, part < 3 ? 0x3232u : 0x7776u};
    const uint32_t step = static_cast<uint32_t>(classes_) * args_.multiplier;
    uint32_t product = static_cast<uint32_t>(begin * classes_ + classes + line) * args_.multiplier;
    const uint16_t* squares = squares_ + (classes + line) * kFan;
#pragma unroll 1
    for (int first = begin; first < begin + count; first += 2) {
      int32_t before[kParts][2][4];
#pragma unroll
      for (int i = 0; i < kParts; ++i)
        load_before(from, first, classes + i * (kProductClasses / kParts), before[i]);
      const uint16_t* of_both = squares + (first ^ (2 * line));
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        const uint32_t both = *reinterpret_cast<const uint32_t*>(of_both + 8 * m * kFan);
        const uint32_t of = product + static_cast<uint32_t>(8 * m) * args_.multiplier;
        const uint32_t rows[2] = {__byte_perm(sums_of(of), both, pick[0]),
                                  __byte_perm(sums_of(of + step), both, pick[1])};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          int32_t d[4];
          multiply_bytes(d, rows, factors[n], before[m * kParts / 8][n]);
          least.v[m][n][0] = least_of(least.v[m][n][0], d[0], d[2]);
          least.v[m][n][1] = least_of(least.v[m][n][1], d[1], d[3]);
        }
      }
      product += 2 * step;
    }
  }

  // Returns in bytes 2 and 3 the sums of bytes 0 and 2 and of bytes 1 and 3 of a product, without
  // their upper bits.
  __device__ __forceinline__ static uint32_t sums_of(uint32_t product) {
    return (product & 0x7f7f7f7fu) * 65537u;
  }

  // Loads the costs that the sums start from. They belong to the classes that states with two first
  // bits follow.
  __device__ __forceinline__ void load_before(const int32_t* from, int first, int p,
                                              int32_t (&before)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int state = (first + i) * classes_ + p;
      const auto* costs = reinterpret_cast<const SomeBytes<8>*>(
          from + (state >> kStepBits) * kProductTiles + 2 * (lane_ % 4));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const SomeBytes<8> two = costs[4 * n];
        before[n][2 * i] = static_cast<int32_t>(two.word[0]);
        before[n][2 * i + 1] = static_cast<int32_t>(two.word[1]);
      }
    }
  }

  __device__ __forceinline__ void store(const Least& least, int32_t* to, int classes) const {
    const int part = lane_ % 4, line = lane_ / 4;
#pragma unroll
    for (int m = 0; m < 8; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int at = (classes + 8 * m + line) * kProductTiles + 8 * n + 2 * part;
        *reinterpret_cast<SomeBytes<8>*>(to + at) = {
            {static_cast<uint32_t>(least.v[m][n][0]), static_cast<uint32_t>(least.v[m][n][1])}};
      }
    }
  }

  // Collects the least costs in the first of several warps that have the same classes, each with
  // its share of the first bits.
  __device__ __forceinline__ void join(Least& least, int share, int chunks, int shares) {
    if (share < shares) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        memory_->least[warp_][i][lane_] = least.v[i / 4][i / 2 % 2][i % 2];
    }
    __syncthreads();
    if (share != 0) return;
    for (int other = warp_ + chunks; other < chunks * shares; other += chunks) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        int32_t& to = least.v[i / 4][i / 2 % 2][i % 2];
        const int32_t cost = memory_->least[other][i][lane_];
        to = cost < to ? cost : to;
      }
    }
  }

  using Base::args_;
  using Base::classes_;
  using Base::kWarps;
  using Base::row;
  using Base::thread_;

  uint16_t* squares_;
  TileProductsMemory* memory_;
  int lane_, warp_;
};

}  // namespace walsh::cuda::encoding
