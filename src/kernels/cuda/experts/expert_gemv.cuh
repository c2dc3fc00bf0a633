// GEMV for products of experts: the block of gemv/gemv_kernel.cuh, with the arguments of the item's
// expert in shared memory.
#pragma once

#include "kernels/cuda/experts/expert_gemv.h"
#include "kernels/cuda/experts/expert_inputs.cuh"
#include "kernels/cuda/experts/expert_sum.cuh"
#include "kernels/cuda/gemv/gemv_kernel.cuh"

namespace walsh::cuda {

// Moves a pointer by `bytes`, unless it is null.
template <typename T>
__device__ __forceinline__ void move_pointer(T*& p, int64_t bytes) {
  if (p == nullptr) return;
  p = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes));
}

// InputLoader for an item's slots, which may be any rows.
class ExpertInputLoader {
 public:
  __device__ __forceinline__ ExpertInputLoader(const GemvArgs& args, const InputImage& image,
                                               int slice, int warp, int lane)
      : args_(static_cast<const ExpertGemvArgs&>(args)),
        image_(image),
        begin_(slice * args.slice_k_tiles),
        k_tiles_(min(args.k_tiles - begin_, args.slice_k_tiles)),
        groups_(InputImage::k_tile_groups(args.x_group)),
        k_tile_bytes_(image.k_tile_bytes(args.x_group)),
        warp_(warp),
        lane_(lane) {}

  // Called by all threads.
  __device__ __forceinline__ void load() {
    if (args_.makes_inputs) {
      make_slot_inputs({args_.in, args_.form, args_.clamp, args_.first_slot, args_.m},
                       {image_, k_tile_bytes_, begin_, k_tiles_}, warp_, lane_);
      __syncthreads();
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
    copy_commit();
    const int per_k_tile = groups_ * image_.scale_columns;
#pragma unroll 1
    for (int i = warp_ * 32 + lane_; i < k_tiles_ * per_k_tile; i += image_.warps * 32)
      load_scale(i / per_k_tile, i % per_k_tile);
    copy_wait<0>();
    __syncthreads();
  }

  // Half a warp copies a vector's 16 pieces of a k-tile.
  __device__ __forceinline__ void copy_vectors() {
    const int piece = lane_ % 16;
    const uint32_t k_tiles = shared_address(image_.k_tiles);
    const int64_t columns = int64_t{args_.k_tiles} * kKTileColumns;
#pragma unroll 1
    for (int n = lane_ / 16; n < args_.vectors; n += 2) {
      const int8_t* row = args_.q + row_of(n) * columns + piece * 16;
      const uint32_t place =
          k_tiles + (piece / 8 * args_.vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16;
#pragma unroll 1
      for (int k_tile = warp_; k_tile < k_tiles_; k_tile += image_.warps)
        copy_async(place + k_tile * k_tile_bytes_, row + (begin_ + k_tile) * kKTileColumns);
    }
  }

  __device__ __forceinline__ int64_t row_of(int vector) const {
    const int token = vector / args_.planes, slot = args_.first_slot + token;
    const int64_t row = args_.rows != nullptr ? args_.rows[slot] : slot;
    return row * args_.planes + (vector - token * args_.planes);
  }

  __device__ __forceinline__ void load_scale(int k_tile, int i) const {
    const int group = i / image_.scale_columns, n = i % image_.scale_columns;
    float2 scale = make_float2(0.0f, 0.0f);
    if (n < args_.vectors) {
      const int64_t from = (row_of(n) * args_.k_tiles + begin_ + k_tile) * groups_ + group;
      scale = image_.scale_pair(args_.x_scales[from], args_.x_sums[from]);
    }
    std::byte* to = image_.k_tiles + k_tile * k_tile_bytes_ + image_.q_bytes();
    reinterpret_cast<float2*>(to)[i] = scale;
  }

  const ExpertGemvArgs& args_;
  const InputImage& image_;
  const int begin_, k_tiles_;
  const int groups_, k_tile_bytes_;
  const int warp_, lane_;
};

// Reads past L1, which may hold the item of an earlier step.
__device__ __forceinline__ ExpertItem item_at(const ExpertItem* item) {
  const int4 words = __ldcg(reinterpret_cast<const int4*>(item));
  return {words.x, words.y, words.z, words.w};
}

// Computes the arguments of a block in `args`, with all of its threads.
__device__ __forceinline__ void find_expert(const ExpertGemvArgs& launch, const ExpertItem& item,
                                            ExpertGemvArgs& args) {
  constexpr int kWords = sizeof(ExpertGemvArgs) / sizeof(uint32_t);
  static_assert(sizeof(ExpertGemvArgs) % sizeof(uint32_t) == 0);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kWords; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint32_t*>(&args)[i] = reinterpret_cast<const uint32_t*>(&launch)[i];
  __syncthreads();
  const int64_t bytes = item.expert * launch.stride;
  if (thread < kMaxMatmuls) {
    TileSet& set = args.set[thread];
    move_pointer(set.codes, bytes);
    move_pointer(set.scales, bytes);
    move_pointer(set.offsets, bytes);
    move_pointer(set.row_factors, bytes);
    move_pointer(set.bias, bytes);
    if (set.y != nullptr) set.y += item.first * set.ldy;
  }
  if (thread == 0) {
    move_pointer(args.codebook, bytes);
    args.m = item.count;
    args.vectors = item.count * args.planes;
    args.first_slot = item.first;
  }
  __syncthreads();
}

// Grid: x over tiles, y over items. Allows more registers than other products: no preparation runs
// beside it, and its arguments are not in the constant bank.
template <typename Decoder, int Flush, int Tiles8>
__global__ void __maxnreg__(Decoder::kVectors == 8 ? 144 : 128)
    expert_gemv_of(const __grid_constant__ ExpertGemvArgs launch) {
  WALSH_DYNAMIC_SHARED(std::byte, shared);
  __shared__ __align__(16) unsigned char own[sizeof(ExpertGemvArgs)];
  if (!launch.chosen_before) wait_previous_kernel();
  allow_next_kernel();
  const ExpertItem item = item_at(launch.items + blockIdx.y);
  if (item.count == 0) return wait_previous_kernel();
  ExpertGemvArgs& args = *reinterpret_cast<ExpertGemvArgs*>(own);
  find_expert(launch, item, args);
  if constexpr (Decoder::kTable) Decoder::load_table(args.codebook);
  GemvBlock<Decoder, Flush, Tiles8, ExpertInputLoader, true> block(args, shared);
  block.run();
  if (launch.sum.arrived == nullptr) return;
  sum_behind_last(launch.sum, args.first_slot, args.m, static_cast<int>(blockIdx.x),
                  static_cast<int>(gridDim.x), int64_t{block.tile_begin} * kTileRows,
                  int64_t{block.tile_begin + block.tile_count} * kTileRows);
}

template <typename Decoder>
ExpertGemvKernel expert_gemv_kernel(const GemvKind& kind) {
  return select_instance<Decoder, 16>(kind, [](auto flush, auto tiles8) -> ExpertGemvKernel {
    return expert_gemv_of<Decoder, flush, tiles8>;
  });
}

}  // namespace walsh::cuda
