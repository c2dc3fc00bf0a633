// Implements the GEMV kernel (gemv/gemv_kernel.h).
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/gemv/gemv_inputs.cuh"
#include "kernels/cuda/gemv/tile_stream.cuh"

namespace walsh::cuda {

template <typename Decoder, int Flush, int Tiles8>
struct GemvBlock : TileStream<GemvBlock<Decoder, Flush, Tiles8>, Decoder, Flush, Tiles8, false> {
  using Base = TileStream<GemvBlock, Decoder, Flush, Tiles8, false>;
  using KTile = typename Base::KTile;
  using Start = typename Base::Start;
  using Base::args, Base::lane, Base::warp, Base::ring, Base::sums;
  using Base::kMemory, Base::kRoundTiles, Base::kWarps, Base::kStages;

  const int tile_begin, tile_count, rounds;
  std::byte* const inputs;  // Each k-tile has q, then the scales.

  // This is the state of the fetches. Behind the current piece come k-tiles `fetch_at` to
  // `fetch_end` of the round, then the next round (counted over all slices).
  int fetch_step = -1, fetch_at = 0, fetch_end = 0;

  __device__ GemvBlock(const GemvArgs& a, std::byte* shared)
      : Base(a, shared),
        tile_begin(static_cast<int>(blockIdx.x) * a.tiles_per_block +
                   min(static_cast<int>(blockIdx.x), a.blocks_with_more)),
        tile_count(a.tiles_per_block + (static_cast<int>(blockIdx.x) < a.blocks_with_more)),
        rounds((tile_count + kRoundTiles - 1) / kRoundTiles),
        inputs(shared + kMemory.ring_bytes() + kMemory.sum_bytes) {
    next_piece();
  }

  __device__ TileRound round_of(int slice, int round) const {
    return Base::round_of(tile_begin, tile_count, slice, round);
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
    this->fetch_left = min(k_tiles - first_k_tile, fetch_end - fetch_at);
    fetch_at += this->fetch_left;
    const int fetch_tile = tile_begin + (fetch_step - slice * rounds) * kRoundTiles + in_round;
    const TileSet& set = set_of(args, fetch_tile);
    const int64_t tile = fetch_tile - set.first_tile;
    const int64_t k_tile = slice * args.slice_k_tiles + first_k_tile;
    this->fetch_codes = set.codes + (tile * args.k_tiles + k_tile) * (KTile::kStride) + lane;
    this->fetch_side = this->side.begin(args, set, tile, k_tile, lane);
  }

  __device__ __forceinline__ void run() {
    const InputImage image{inputs, args.vectors,    KTile::kScaleColumns,
                           kWarps, KTile::kDoubled, KTile::kOwn};
    const typename KTile::Places p = KTile::places(lane, args.vectors);
    const auto k_tile_step = static_cast<uint32_t>(image.k_tile_bytes(args.x_group));
    const uint32_t input = shared_address(inputs);
    uint32_t slot = ring;
    Start start(round_of(0, 0));
    this->fill(0, kStages - 1);
    // This stands here because the compiler would move it after the wait.
    InputLoader loader(args, image, 0, warp, lane);
    this->fill(kStages - 1, kStages);
    wait_previous_kernel();
    loader.load();
#pragma unroll 1
    for (int slice = 0, round = 0;;) {
      this->multiply_round(start, p, input, k_tile_step, slot);
      KTile::write_tiles(
          args, sums, start.r, kWarps, warp, lane, slice > 0, [](int) { return 1.0f; },
          [](const TileSet&, int64_t, int) { return [](float) {}; });
      if (++round == rounds) {
        round = 0;
        if (++slice * args.slice_k_tiles >= args.k_tiles) return;
      }
      start = Start(round_of(slice, round));
      __syncthreads();
      if (round > 0) continue;
      InputLoader(args, image, slice, warp, lane).load();
    }
  }
};

// Multiplies. Registers are limited, so that a block that prepares the next input fits beside this
// one.
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

// Does the same for all numbers of columns that are summed together and for which a decoder has
// kernels.
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
