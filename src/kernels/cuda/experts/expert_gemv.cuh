// Multiplies experts by GEMV. Blocks work as in gemv/gemv_kernel.cuh, but go through the tiles of
// several items (expert_share.h), and fetch the weights of the next item meanwhile.
#pragma once

#include "kernels/cuda/experts/expert_gemv.h"
#include "kernels/cuda/experts/expert_inputs.cuh"
#include "kernels/cuda/experts/expert_sum.cuh"
#include "kernels/cuda/experts/warp_lanes.cuh"
#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

// Moves a pointer by `bytes`, unless it is null.
template <typename T>
__device__ __forceinline__ void move_pointer(T*& p, int64_t bytes) {
  if (p == nullptr) return;
  p = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes));
}

// Loads inputs as InputLoader does, for an item's slots, which may be any rows.
class ExpertInputLoader {
 public:
  __device__ __forceinline__ ExpertInputLoader(const ExpertGemvArgs& args, const ExpertItem& item,
                                               const InputImage& image, int slice, int warp,
                                               int lane)
      : args_(args),
        item_(item),
        image_(image),
        begin_(slice * args.slice_k_tiles),
        k_tiles_(min(args.k_tiles - begin_, args.slice_k_tiles)),
        groups_(InputImage::k_tile_groups(args.x_group)),
        k_tile_bytes_(image.k_tile_bytes(args.x_group)),
        warp_(warp),
        lane_(lane) {}

  // Starts loading. All threads call this, and have to wait for their copies and for each other
  // afterwards.
  __device__ __forceinline__ void start() {
    if (args_.makes_inputs) {
      make_slot_inputs({args_.in, args_.form, args_.clamp, item_.first, item_.count},
                       {image_, k_tile_bytes_, begin_, k_tiles_}, warp_, lane_);
    } else {
      copy();
    }
  }

 private:
  __device__ __forceinline__ void copy() {
    if (image_.doubled) {
      const int64_t first = row_of(0) * args_.k_tiles + begin_;
      load_doubled(image_, args_.q + first * kKTileColumns, k_tiles_, k_tile_bytes_, warp_, lane_);
    } else {
      copy_vectors();
    }
    const int per_k_tile = groups_ * image_.scale_columns;
#pragma unroll 1
    for (int i = warp_ * 32 + lane_; i < k_tiles_ * per_k_tile; i += image_.warps * 32)
      load_scale(i / per_k_tile, i % per_k_tile);
  }

  // Copies vectors. Half a warp copies a vector's 16 pieces of a k-tile.
  __device__ __forceinline__ void copy_vectors() {
    const int piece = lane_ % 16;
    const uint32_t k_tiles = shared_address(image_.k_tiles);
    const int64_t columns = int64_t{args_.k_tiles} * kKTileColumns;
#pragma unroll 1
    for (int n = lane_ / 16; n < image_.vectors; n += 2) {
      const int8_t* row = args_.q + row_of(n) * columns + piece * 16;
      const uint32_t place =
          k_tiles + (piece / 8 * image_.vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16;
#pragma unroll 1
      for (int k_tile = warp_; k_tile < k_tiles_; k_tile += image_.warps)
        copy_async(place + k_tile * k_tile_bytes_, row + (begin_ + k_tile) * kKTileColumns);
    }
  }

  __device__ __forceinline__ int64_t row_of(int vector) const {
    const int token = vector / args_.planes, slot = item_.first + token;
    const int64_t row = args_.rows != nullptr ? args_.rows[slot] : slot;
    return row * args_.planes + (vector - token * args_.planes);
  }

  __device__ __forceinline__ void load_scale(int k_tile, int i) const {
    const int group = i / image_.scale_columns, n = i % image_.scale_columns;
    float2 scale = make_float2(0.0f, 0.0f);
    if (n < image_.vectors) {
      const int64_t from = (row_of(n) * args_.k_tiles + begin_ + k_tile) * groups_ + group;
      scale = image_.scale_pair(args_.x_scales[from], args_.x_sums[from]);
    }
    std::byte* to = image_.k_tiles + k_tile * k_tile_bytes_ + image_.q_bytes();
    reinterpret_cast<float2*>(to)[i] = scale;
  }

  const ExpertGemvArgs& args_;
  const ExpertItem& item_;
  const InputImage& image_;
  const int begin_, k_tiles_;
  const int groups_, k_tile_bytes_;
  const int warp_, lane_;
};

// Returns an item, read past L1, which may hold the item of an earlier step.
__device__ __forceinline__ ExpertItem item_at(const ExpertItem* item) {
  const int4 words = __ldcg(reinterpret_cast<const int4*>(item));
  return {words.x, words.y, words.z, words.w};
}

// Finds the block's work with all of its threads, and returns how many items have it. A thread has
// some neighbouring places of items.
__device__ __forceinline__ int find_work(const ExpertGemvArgs& args, ExpertWork* work) {
  const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int each = (args.places + threads - 1) / threads;
  const auto item_of = [&](int i) {
    const int place = thread * each + i;
    return place < args.places ? item_at(args.items + place) : ExpertItem();
  };
  const ExpertItem first = item_of(0);
  int own = first.count > 0 ? 1 : 0, total = 0;
#pragma unroll 1
  for (int i = 1; i < each; ++i)
    own += item_of(i).count > 0 ? 1 : 0;
  int number = count_before(own, total);
  const ExpertShare share =
      share_of(total, args.share, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int parts = share.parts(args.share);
  number -= share.first_item(args.share);
#pragma unroll 1
  for (int i = 0; i < each && own > 0; ++i) {
    const ExpertItem item = i == 0 ? first : item_of(i);
    if (item.count == 0) continue;
    if (number >= 0 && number < parts) {
      const ExpertPart part = part_of(share, args.share, number);
      work[number] = {item, part.first_tile(args.share), part.tile_count(args.share), part};
    }
    ++number;
  }
  __syncthreads();
  return parts;
}

// Describes the products of an item, with their results and what they read.
struct ExpertSets {
  TileSet set[kMaxMatmuls];
  int m;
};

template <typename Decoder, int Flush, int Tiles8>
struct ExpertBlock : TileStream<ExpertBlock<Decoder, Flush, Tiles8>, Decoder, Flush, Tiles8, true> {
  using Base = TileStream<ExpertBlock, Decoder, Flush, Tiles8, true>;
  using KTile = typename Base::KTile;
  using Start = typename Base::Start;
  using Base::kMemory, Base::kRoundTiles, Base::kWarps, Base::kStages;
  using Base::lane, Base::warp, Base::ring, Base::sums;

  const ExpertGemvArgs& args;
  const ExpertWork* const work;
  const int works, slices;
  ExpertSets& sets;  // These are the current item's.
  // It is one or two buffers, each with q per k-tile, then the scales.
  std::byte* const inputs;
  const int buffer_bytes;  // It is the distance of the two buffers; 0: there is one.

  // This is the state of the fetches. Behind the current piece come k-tiles `fetch_at` to
  // `fetch_end` of the round, then the next round (counted over all slices), then the next item.
  int fetch_work = 0, fetch_step = -1, fetch_at = 0, fetch_end = 0;

  __device__ ExpertBlock(const ExpertGemvArgs& a, const ExpertWork* w, int count, ExpertSets& s,
                         std::byte* shared)
      : Base(a, shared),
        args(a),
        work(w),
        works(count),
        slices((a.k_tiles + a.slice_k_tiles - 1) / a.slice_k_tiles),
        sets(s),
        inputs(shared + kMemory.ring_bytes() + kMemory.sum_bytes),
        buffer_bytes((a.input_buffers - 1) * a.slice_k_tiles *
                     input_bytes(a.vectors, Tiles8, a.x_group, KTile::kDoubled)) {
    next_piece();
  }

  __device__ __forceinline__ int rounds_of(const ExpertWork& own) const {
    return (own.tiles + kRoundTiles - 1) / kRoundTiles;
  }

  // Advances to the next piece of a run (the k-tiles of one tile), or to the next run.
  __device__ __forceinline__ void next_piece() {
    int rounds = rounds_of(work[fetch_work]);
    while (fetch_at == fetch_end) {
      if (++fetch_step == slices * rounds) {
        if (++fetch_work == works) return;
        fetch_step = 0;
        rounds = rounds_of(work[fetch_work]);
      }
      const int slice = divide(fetch_step, rounds);
      const ExpertWork& own = work[fetch_work];
      const TileRound r =
          Base::round_of(own.first_tile, own.tiles, slice, fetch_step - slice * rounds);
      fetch_at = r.begin;
      fetch_end = r.end;
    }
    const ExpertWork& own = work[fetch_work];
    const int slice = divide(fetch_step, rounds);
    const int k_tiles = min(args.k_tiles - slice * args.slice_k_tiles, args.slice_k_tiles);
    const int in_round = divide(fetch_at, k_tiles), first_k_tile = fetch_at - in_round * k_tiles;
    this->fetch_left = min(k_tiles - first_k_tile, fetch_end - fetch_at);
    fetch_at += this->fetch_left;
    const int fetch_tile = own.first_tile + (fetch_step - slice * rounds) * kRoundTiles + in_round;
    const TileSet& set = set_of(args, fetch_tile);
    const int64_t tile = fetch_tile - set.first_tile;
    const int64_t k_tile = slice * args.slice_k_tiles + first_k_tile;
    const int64_t bytes = own.item.expert * args.stride;
    this->fetch_codes = set.codes + (tile * args.k_tiles + k_tile) * (KTile::kStride) + lane;
    this->fetch_side = this->side.begin(args, set, tile, k_tile, lane);
    move_pointer(this->fetch_codes, bytes);
    move_pointer(this->fetch_side, bytes);
  }

  __device__ __forceinline__ InputImage image_of(int step, int count) const {
    return {inputs + step % 2 * buffer_bytes,
            count * args.planes,
            KTile::kScaleColumns,
            kWarps,
            KTile::kDoubled,
            KTile::kOwn};
  }

  // Starts fetching the inputs of step number `step` of all slices of all items. Those of every
  // other one begin with other warps, because one item may have too few inputs for all.
  __device__ __forceinline__ void start_inputs(int step) {
    const int of = divide(step, slices);
    if (of >= works) return;
    const ExpertItem& item = work[of].item;
    const int first = (warp + step % 2 * (kWarps / 2)) % kWarps;
    ExpertInputLoader(args, item, image_of(step, item.count), step - of * slices, first, lane)
        .start();
  }

  // Makes an item the current one. All threads synchronize before and after this.
  __device__ __forceinline__ void begin_item(const ExpertItem& item) {
    const int64_t bytes = item.expert * args.stride;
    const int thread = warp * 32 + lane;
    if (thread < kMaxMatmuls) {
      TileSet& set = sets.set[thread];
      set = args.set[thread];
      move_pointer(set.row_factors, bytes);
      move_pointer(set.bias, bytes);
      if (set.y != nullptr) set.y += item.first * set.ldy;
    }
    if (thread == 0) sets.m = item.count;
    if constexpr (Decoder::kTable) {
      const void* codebook = args.codebook;
      move_pointer(codebook, bytes);
      Decoder::load_table(codebook);
    }
  }

  // Multiplies the rounds of a slice of the current item.
  __device__ __forceinline__ void multiply_step(int step, uint32_t& slot) {
    const int of = divide(step, slices), slice = step - of * slices;
    const ExpertWork& own = work[of];
    const InputImage image = image_of(step, own.item.count);
    const typename KTile::Places p = KTile::places(lane, image.vectors);
    const auto k_tile_step = static_cast<uint32_t>(image.k_tile_bytes(args.x_group));
    const uint32_t input = shared_address(image.k_tiles);
    const int rounds = rounds_of(own);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      const Start start(Base::round_of(own.first_tile, own.tiles, slice, round));
      this->multiply_round(start, p, input, k_tile_step, slot);
      KTile::write_tiles(
          sets, sums, start.r, kWarps, warp, lane, slice > 0, [](int) { return 1.0f; },
          [](const TileSet&, int64_t, int) { return [](float) {}; });
      __syncthreads();
    }
  }

  __device__ __forceinline__ void run() {
    uint32_t slot = ring;
    this->fill(0, kStages);
    wait_previous_kernel();
    const int steps = works * slices;
    start_inputs(0);
    if (args.input_buffers > 1) start_inputs(1);
    copy_commit();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      // This waits for the first inputs, and later for those that were requested since.
      if (step == 0 || step >= args.input_buffers) copy_wait<0>();
      const int of = divide(step, slices);
      if (of * slices == step) begin_item(work[of].item);
      __syncthreads();
      multiply_step(step, slot);
      const int next = step + args.input_buffers;
      if (next >= steps) continue;
      start_inputs(next);
      copy_commit();
    }
  }
};

// Multiplies experts. It may use more registers than other products, because no preparation runs
// beside it.
template <typename Decoder, int Flush, int Tiles8>
__global__ void __maxnreg__(Decoder::kVectors == 8 ? 144 : 128)
    expert_gemv_of(const __grid_constant__ ExpertGemvArgs args) {
  WALSH_DYNAMIC_SHARED(std::byte, shared);
  __shared__ __align__(16) unsigned char works[kMostExpertParts * sizeof(ExpertWork)];
  __shared__ __align__(16) unsigned char sets[sizeof(ExpertSets)];
  if (!args.chosen_before) wait_previous_kernel();
  allow_next_kernel();
  auto* work = reinterpret_cast<ExpertWork*>(works);
  const int count = find_work(args, work);
  if (count == 0) return wait_previous_kernel();
  ExpertBlock<Decoder, Flush, Tiles8>(args, work, count, *reinterpret_cast<ExpertSets*>(sets),
                                      shared)
      .run();
  if (args.sum.arrived == nullptr) return;
  sum_behind_last(args.sum, args.share, work, count, reinterpret_cast<SummedPart*>(shared));
}

// Returns a kernel for as many vectors as an item's slots have in two planes, because inputs of any
// code may have two planes.
template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind) {
  return select_instance<Decoder, 2 * kVectorSlots>(
      kind, [](auto flush, auto tiles8) -> ExpertGemvKernel {
        return expert_gemv_of<Decoder, flush, tiles8>;
      });
}

}  // namespace walsh::cuda
