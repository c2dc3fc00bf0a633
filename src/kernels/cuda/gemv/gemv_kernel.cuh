// The GEMV kernel (gemv/gemv_kernel.h).
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/gemv/gemv_inputs.cuh"
#include "kernels/cuda/gemv/k_tile_dot.cuh"

namespace walsh::cuda {

// `Loader` copies the inputs to shared memory, as InputLoader does.
template <typename Decoder, int Flush, int Tiles8, typename Loader = InputLoader,
          bool ManyTiles = false>
struct GemvBlock {
  static constexpr GemvMemory kMemory =
      gemv_memory({Decoder::kKind, Flush, Tiles8, ManyTiles}, kGemvArchitecture);
  static constexpr int kRoundTiles = round_tiles(ManyTiles, Tiles8, kGemvArchitecture);
  static constexpr int kWarps = kMemory.warps;
  static constexpr int kStages = kMemory.stages;

  using KTile = KTileDot<Decoder, Flush, Tiles8, KTilePlaces<Decoder::kVectors, Flush, true>>;
  static_assert(KTile::kDoubled == doubles_inputs(Decoder::kKind, Tiles8));

  const GemvArgs& args;
  const int lane, warp;
  const int tile_begin, tile_count, rounds;
  const uint32_t ring;      // this warp's ring: this lane's codes in the first stage
  float* const sums;        // [piece][token][row]
  std::byte* const inputs;  // per k-tile: q, then the scales
  LevelTable table;
  int second_scale;  // distance from the scale of a k-tile's first chunk to that of its second

  // State of the fetches: `fetch_left` k-tiles of the current piece, then k-tiles `fetch_at` to
  // `fetch_end` of the round, then the next round (counted over all slices).
  int fetch_step = -1, fetch_at = 0, fetch_end = 0, fetch_left = 0;
  const uint4* fetch_codes;
  const std::byte* fetch_side;  // this lane's vector of scales or offsets
  const typename KTile::Side side;
  uint32_t side_offset;  // relative to a lane's codes in a stage

  __device__ GemvBlock(const GemvArgs& a, std::byte* shared)
      : args(a),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)),
        tile_begin(static_cast<int>(blockIdx.x) * a.tiles_per_block +
                   min(static_cast<int>(blockIdx.x), a.blocks_with_more)),
        tile_count(a.tiles_per_block + (static_cast<int>(blockIdx.x) < a.blocks_with_more)),
        rounds((tile_count + kRoundTiles - 1) / kRoundTiles),
        ring(shared_address(shared) + warp * kStages * kMemory.stage_bytes + lane * 16),
        sums(reinterpret_cast<float*>(shared + kMemory.ring_bytes())),
        inputs(shared + kMemory.ring_bytes() + kMemory.sum_bytes),
        side(a, lane) {
    // The shuffle keeps the table out of uniform registers, which permutes cannot read.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      table.words[i] = __shfl_sync(~0u, a.table.words[i], 0);
    table = KTile::levels(table);
    second_scale = (4 >> a.scale_shift) * 32;
    // Stored, because the compiler would otherwise recompute it for every k-tile.
    side_offset = static_cast<uint32_t>(side.place - lane * 16);
    asm volatile("" : "+r"(side_offset));
    next_piece();
  }

  __device__ TileRound round_of(int slice, int round) const {
    TileRound r;
    const int first = round * kRoundTiles;
    r.first = tile_begin + first;
    r.tiles = min(tile_count - first, kRoundTiles);
    r.k_tiles = min(args.k_tiles - slice * args.slice_k_tiles, args.slice_k_tiles);
    r.share(warp, kWarps);
    return r;
  }

  // Advances to the next piece of a run (the k-tiles of one tile), or to the next run.
  __device__ __forceinline__ void next_piece() {
    while (fetch_at == fetch_end) {
      ++fetch_step;
      const int slice = divide(fetch_step, rounds);
      if (slice * args.slice_k_tiles >= args.k_tiles) return;
      const TileRound r = round_of(slice, fetch_step - slice * rounds);
      fetch_at = r.begin;
      fetch_end = r.end;
    }
    const int slice = divide(fetch_step, rounds);
    const int k_tiles = min(args.k_tiles - slice * args.slice_k_tiles, args.slice_k_tiles);
    const int in_round = divide(fetch_at, k_tiles), first_k_tile = fetch_at - in_round * k_tiles;
    fetch_left = min(k_tiles - first_k_tile, fetch_end - fetch_at);
    fetch_at += fetch_left;
    const int fetch_tile = tile_begin + (fetch_step - slice * rounds) * kRoundTiles + in_round;
    const TileSet& set = set_of(args, fetch_tile);
    const int64_t tile = fetch_tile - set.first_tile;
    const int64_t k_tile = slice * args.slice_k_tiles + first_k_tile;
    fetch_codes = set.codes + (tile * args.k_tiles + k_tile) * (KTile::kStride) + lane;
    fetch_side = side.begin(args, set, tile, k_tile, lane);
  }

  // Starts copying the next k-tile of the piece.
  __device__ __forceinline__ void copy_next(uint32_t slot) {
    KTile::copy_k_tile(slot, fetch_codes, side.place >= 0, slot + side_offset, fetch_side);
    fetch_side += side.step;
    fetch_codes += KTile::kStride;
  }
  // Starts copying the next k-tile, if any, and advances to the next piece after the last one.
  __device__ __forceinline__ void fetch(uint32_t slot) {
    if (fetch_left > 0) {
      copy_next(slot);
      if (--fetch_left == 0) next_piece();
    }
    copy_commit();
  }

  // The first piece of this warp's run in a round.
  struct Start {
    TileRound r;
    int tile, k_tile;
  };

  __device__ __forceinline__ Start start_of(int slice, int round) const {
    Start s;
    s.r = round_of(slice, round);
    s.tile = divide(s.r.begin, s.r.k_tiles);
    s.k_tile = s.r.begin - s.tile * s.r.k_tiles;
    return s;
  }

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
        // How many k-tiles can be processed before either the fetched piece or the current piece
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
        if (more && fetch_left == 0) next_piece();
      }
      KTile::store_sums(sums, warp + tile, args.planes, lane, y);
    }
  }

  __device__ __forceinline__ void fill(int begin, int end) {
#pragma unroll 1
    for (int s = begin; s < end; ++s)
      fetch(ring + s * kMemory.stage_bytes);
  }

  __device__ __forceinline__ void run() {
    const InputImage image{inputs, args.vectors,    KTile::kScaleColumns,
                           kWarps, KTile::kDoubled, KTile::kOwn};
    const typename KTile::Places p = KTile::places(lane, args.vectors);
    const auto k_tile_step = static_cast<uint32_t>(image.k_tile_bytes(args.x_group));
    const uint32_t input = shared_address(inputs);
    uint32_t slot = ring;
    Start start = start_of(0, 0);
    fill(0, kStages - 1);
    // Placed here, because the compiler would move it behind the wait.
    Loader loader(args, image, 0, warp, lane);
    fill(kStages - 1, kStages);
    wait_previous_kernel();
    loader.load();
#pragma unroll 1
    for (int slice = 0, round = 0;;) {
      multiply_round(start, p, input, k_tile_step, slot);
      KTile::write_tiles(
          args, sums, start.r, kWarps, warp, lane, slice > 0, [](int) { return 1.0f; },
          [](const TileSet&, int64_t, int) { return [](float) {}; });
      if (++round == rounds) {
        round = 0;
        if (++slice * args.slice_k_tiles >= args.k_tiles) return;
      }
      start = start_of(slice, round);
      __syncthreads();
      if (round > 0) continue;
      Loader(args, image, slice, warp, lane).load();
    }
  }
};

// Limits registers, so that a block that prepares the next input fits beside it.
template <typename Decoder, int Flush, int Tiles8>
__global__ void __maxnreg__(Decoder::kVectors == 8 ? 128 : 96)
    gemv_kernel_of(const __grid_constant__ GemvArgs args) {
  WALSH_DYNAMIC_SHARED(std::byte, shared);
  allow_next_kernel();
  if constexpr (Decoder::kTable) Decoder::load_table(args.codebook);
  GemvBlock<Decoder, Flush, Tiles8>(args, shared).run();
}

template <int N>
using Constant = std::integral_constant<int, N>;

// Returns instance(Constant<Flush>, Constant<tiles of 8 vectors>) of the kernel that `kind` selects
// among those that are compiled for at most `Most` vectors.
template <typename Decoder, int Flush, int Most, typename Instance>
auto select_tiles(const GemvKind& kind, Instance instance) {
  constexpr Constant<Flush> kFlush;
  if constexpr (kIsTrellis<Decoder> && Flush == 32) {
    return instance(kFlush, Constant<2>{});
  } else {
    if constexpr (std::min(Most, most_vectors(Decoder::kKind, Flush)) > 16) {
      if (kind.tiles8 == 4) return instance(kFlush, Constant<4>{});
    }
    return kind.tiles8 == 0   ? instance(kFlush, Constant<0>{})
           : kind.tiles8 == 1 ? instance(kFlush, Constant<1>{})
                              : instance(kFlush, Constant<2>{});
  }
}

// The same for all columns summed together that a decoder has kernels for.
template <typename Decoder, int Most, typename Instance>
auto select_instance(const GemvKind& kind, Instance instance) {
  constexpr bool kFine = has_flush(Decoder::kKind, 32), kCoarse = has_flush(Decoder::kKind, 128);
  if constexpr (kFine && kCoarse) {
    if (kind.flush == 32) return select_tiles<Decoder, 32, Most>(kind, instance);
  }
  constexpr int kOther = kCoarse ? 128 : 32;
  return select_tiles<Decoder, kOther, Most>(kind, instance);
}

template <typename Decoder>
GemvKernel gemv_kernel(const GemvKind& kind) {
  return select_instance<Decoder, 32>(kind, [](auto flush, auto tiles8) -> GemvKernel {
    return gemv_kernel_of<Decoder, flush, tiles8>;
  });
}

}  // namespace walsh::cuda
