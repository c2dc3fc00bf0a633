// Defines how the warps of a block multiply tiles. Each warp brings the k-tiles of its runs through
// its own ring in shared memory, whichever tiles they belong to.
#pragma once

#include "kernels/cuda/gemv/k_tile_dot.cuh"

namespace walsh::cuda {

// Holds the stream of a warp. `Block` derives from this. Its next_piece() sets fetch_left,
// fetch_codes and fetch_side for the next piece of this warp (the k-tiles of one tile that it has),
// if there is one.
template <typename Block, typename Decoder, int Flush, int Tiles8, bool Experts>
struct TileStream {
  static constexpr GemvMemory kMemory =
      gemv_memory({Decoder::kKind, Flush, Tiles8, Experts}, kGemvArchitecture);
  static constexpr int kRoundTiles = round_tiles(Experts, Tiles8, kGemvArchitecture);
  static constexpr int kWarps = kMemory.warps;
  static constexpr int kStages = kMemory.stages;

  using KTile = KTileDot<Decoder, Flush, Tiles8, KTilePlaces<Decoder::kVectors, Flush, true>>;
  static_assert(KTile::kDoubled == doubles_inputs(Decoder::kKind, Tiles8));

  const GemvArgs& args;
  const int lane, warp;
  // It is the address in this warp's ring of this lane's codes in the first stage.
  const uint32_t ring;
  float* const sums;  // Its shape is [piece][token][row].
  LevelTable table;
  // It is the distance from the scale of a k-tile's first chunk to that of its second.
  int second_scale;

  int fetch_left = 0;  // The current piece has this many k-tiles left.
  const uint4* fetch_codes;
  const std::byte* fetch_side;  // It is this lane's vector of scales or offsets.
  const typename KTile::Side side;
  uint32_t side_offset;  // It is relative to a lane's codes in a stage.

  __device__ TileStream(const GemvArgs& a, std::byte* shared)
      : args(a),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        ring(shared_address(shared) + warp * kStages * kMemory.stage_bytes + lane * 16),
        sums(reinterpret_cast<float*>(shared + kMemory.ring_bytes())),
        side(a, lane) {
    // The shuffle keeps the table out of uniform registers, which permutes cannot read.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      table.words[i] = __shfl_sync(~0u, a.table.words[i], 0);
    table = KTile::levels(table);
    second_scale = (4 >> a.scale_shift) * 32;
    // This value is kept in a register, because the compiler would otherwise recompute it for every
    // k-tile.
    side_offset = static_cast<uint32_t>(side.place - lane * 16);
    asm volatile("" : "+r"(side_offset));
  }

  // Returns round number `round` of the tiles [begin, begin + count), in slice `slice` of the
  // columns.
  __device__ TileRound round_of(int begin, int count, int slice, int round) const {
    TileRound r;
    const int first = round * kRoundTiles;
    r.first = begin + first;
    r.tiles = min(count - first, kRoundTiles);
    r.k_tiles = min(args.k_tiles - slice * args.slice_k_tiles, args.slice_k_tiles);
    r.share(warp, kWarps);
    return r;
  }

  // Starts copying the next k-tile of the piece.
  __device__ __forceinline__ void copy_next(uint32_t slot) {
    KTile::copy_k_tile(slot, fetch_codes, side.place >= 0, slot + side_offset, fetch_side);
    fetch_side += side.step;
    fetch_codes += KTile::kStride;
  }
  // Starts copying the next k-tile, if there is one, and advances to the next piece after the last
  // one.
  __device__ __forceinline__ void fetch(uint32_t slot) {
    if (fetch_left > 0) {
      copy_next(slot);
      if (--fetch_left == 0) own().next_piece();
    }
    copy_commit();
  }
  __device__ __forceinline__ void fill(int begin, int end) {
#pragma unroll 1
    for (int s = begin; s < end; ++s)
      fetch(ring + s * kMemory.stage_bytes);
  }

  // Finds the first piece of this warp's run in a round.
  struct Start {
    TileRound r;
    int tile, k_tile;

    __device__ explicit Start(const TileRound& round)
        : r(round), tile(divide(r.begin, r.k_tiles)), k_tile(r.begin - tile * r.k_tiles) {}
  };

  __device__ __forceinline__ void multiply_round(const Start& start,
                                                 const typename KTile::Places& p, uint32_t input,
                                                 uint32_t k_tile_step, uint32_t& slot) {
    const uint32_t end = ring + kStages * kMemory.stage_bytes;
    int tile = start.tile, k_tile = start.k_tile;
#pragma unroll 1
    for (int left = start.r.end - start.r.begin; left > 0; k_tile = 0, ++tile) {
      float y[KTile::kNTiles][4] = {};
      uint32_t x = input + k_tile * k_tile_step;
      int count = min(start.r.k_tiles - k_tile, left);
      left -= count;
#pragma unroll 1
      while (count > 0) {
        // `now` is how many k-tiles can be processed before the fetched piece or the current piece
        // changes.
        const bool more = fetch_left > 0;
        int now = more ? min(count, fetch_left) : count;
        count -= now;
        if (more) fetch_left -= now;
#pragma unroll 1
        for (; now > 0; --now, x += k_tile_step) {
          copy_wait<kStages - 1>();
          __syncwarp();
          KTile::multiply(args, table, second_scale, slot, slot + KTile::scales_from_codes(lane), x,
                          p, y, [&] {
                            __syncwarp();
                            if (more) copy_next(slot);
                            copy_commit();
                          });
          slot += kMemory.stage_bytes;
          if (slot == end) slot = ring;
        }
        if (more && fetch_left == 0) own().next_piece();
      }
      KTile::store_sums(sums, warp + tile, args.planes, lane, y);
    }
  }

 private:
  __device__ __forceinline__ Block& own() {
    return static_cast<Block&>(*this);
  }
};

}  // namespace walsh::cuda
