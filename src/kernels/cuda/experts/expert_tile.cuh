// Runs the tile kernel of gemm/int8_tile.cuh for items of experts. A block takes rows of one
// expert's weights and the slots of one item.
#pragma once

#include "kernels/cuda/experts/expert_group_tile.cuh"
#include "kernels/cuda/experts/expert_tile.h"
#include "kernels/cuda/gemm/int8_tile.cuh"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda::detail {

template <typename T>
__device__ __forceinline__ T* moved(T* p, int64_t bytes) {
  if (p == nullptr) return p;
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes));
}

// Computes a product's arguments for expert `item.expert`, with all threads of the block.
__device__ __forceinline__ void find_input(const TileInput& first, int64_t bytes, TileInput& own) {
  constexpr int kWords = sizeof(TileInput) / sizeof(uint32_t);
  static_assert(sizeof(TileInput) % sizeof(uint32_t) == 0);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint32_t*>(&own)[i] = reinterpret_cast<const uint32_t*>(&first)[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    own.codes = moved(own.codes, bytes);
    own.scales = moved(own.scales, bytes);
    own.offsets = moved(own.offsets, bytes);
    own.bias = moved(own.bias, bytes);
  }
}

// Calls multiply(p, rows, block, first, end) for the vectors of the block's item, kTokens at a
// time. `block` is the number of the block of rows of product p. The grid spans blocks of rows of
// all products in x, and items in y.
template <int kTokens, typename Multiply>
__device__ __forceinline__ void multiply_item(const ExpertTileLaunch& launch,
                                              const Multiply& multiply) {
  __shared__ __align__(16) unsigned char storage[sizeof(TileInput)];
  __shared__ __align__(16) int list[kTokens];
  wait_previous_kernel();
  const ExpertItem item = launch.items[blockIdx.y];
  if (item.count == 0) return;
  const int block = static_cast<int>(blockIdx.x);
  int which = 0;
  while (which + 1 < launch.tiles.count && block >= launch.tiles.input[which + 1].first_block)
    ++which;
  TileInput& p = *reinterpret_cast<TileInput*>(storage);
  find_input(launch.tiles.input[which], item.expert * launch.stride, p);
  const int end = item.first + item.count;
  for (int first = item.first; first < end; first += kTokens) {
    __syncthreads();  // The last stages have been read.
    for (int t = static_cast<int>(threadIdx.x); t < kTokens; t += static_cast<int>(blockDim.x)) {
      const int slot = min(first + t, end - 1);
      list[t] = (launch.rows != nullptr ? launch.rows[slot] : slot) * p.planes;
    }
    __syncthreads();
    multiply(p, InputRows<true>{list}, block - p.first_block, first, end);
  }
}

template <typename Decoder, bool Fine, int WM, int WK, int NT>
__global__ void __launch_bounds__(WM* WK * 32)
    expert_tile_kernel(const __grid_constant__ ExpertTileLaunch launch, int stages) {
  using Kernel = TileKernel<Decoder, Fine, WM, WK, NT, true>;
  extern __shared__ __align__(16) unsigned char tile_shared[];
  multiply_item<Kernel::kTokens>(
      launch, [&](const TileInput& p, InputRows<true> rows, int block, int first, int end) {
        Kernel::multiply(p, rows, block, first, end, stages, tile_shared);
      });
}

// Multiplies with warp group instructions. The kernel is empty for architectures without them.
template <typename Decoder>
__global__ void __launch_bounds__(GroupTile<Decoder>::kThreads, 2)
    expert_group_kernel(const __grid_constant__ ExpertTileLaunch launch) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Kernel = GroupTile<Decoder>;
  extern __shared__ __align__(16) unsigned char tile_shared[];
  const uint32_t past = shared_address(tile_shared) % Kernel::kAlignment;
  auto* ring = reinterpret_cast<typename Kernel::Stage*>(tile_shared + (Kernel::kAlignment - past) %
                                                                           Kernel::kAlignment);
  multiply_item<Kernel::kTokens>(
      launch, [&](const TileInput& p, InputRows<true> rows, int block, int first, int end) {
        Kernel::multiply(p, rows, block, first, end, ring);
      });
#endif
}

// Assigns blocks to products.
inline dim3 expert_grid(ExpertTileLaunch& work, int rows_of_block) {
  int blocks = 0;
  for (int k = 0; k < work.tiles.count; ++k) {
    work.tiles.input[k].first_block = blocks;
    blocks += (work.tiles.input[k].rows + rows_of_block - 1) / rows_of_block;
  }
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(work.places));
}

template <typename Decoder, bool Fine, int WM, int WK, int NT>
bool launch_expert_blocks(ExpertTileLaunch& work, Stream stream) {
  using Kernel = TileKernel<Decoder, Fine, WM, WK, NT, true>;
  constexpr int kMostStages = 3;
  constexpr size_t kOwn = 2048;  // Shared memory has this much besides the stages.
  const size_t limit = current_device().shared_bytes - kOwn;
  int stages = kMostStages;
  while (stages > 1 && Kernel::shared_bytes(stages) > limit)
    --stages;
  if (stages < 2) return false;
  cuda::launch(
      "tiles of experts", expert_tile_kernel<Decoder, Fine, WM, WK, NT>,
      {expert_grid(work, Kernel::kRows), dim3(Kernel::kThreads), Kernel::shared_bytes(stages)},
      stream, work, stages);
  return true;
}

template <typename Decoder>
bool launch_expert_groups(ExpertTileLaunch& work, Stream stream) {
  using Kernel = GroupTile<Decoder>;
  if (current_device().major != 9 || !has_body(expert_group_kernel<Decoder>)) return false;
  cuda::launch("tiles of experts", expert_group_kernel<Decoder>,
               {expert_grid(work, Kernel::kRows), dim3(Kernel::kThreads), Kernel::kSharedBytes},
               stream, work);
  return true;
}

template <typename Decoder, bool Fine>
bool launch_expert_tile(TileShape shape, ExpertTileLaunch& work, Stream stream) {
  switch (shape) {
    case TileShape::group:
      if constexpr (Fine) {
        return false;
      } else {
        return launch_expert_groups<Decoder>(work, stream);
      }
    case TileShape::large:
      return launch_expert_blocks<Decoder, Fine, 8, 1, 16>(work, stream);
    case TileShape::medium:
      return launch_expert_blocks<Decoder, Fine, 2, 4, 8>(work, stream);
    case TileShape::small:
      return launch_expert_blocks<Decoder, Fine, 2, 1, 8>(work, stream);
  }
  return false;
}

template <typename Decoder>
ExpertTileLauncher expert_tile(bool fine) {
  if constexpr (!has_flush(Decoder::kKind, 128)) {
    return launch_expert_tile<Decoder, true>;
  } else if constexpr (!has_flush(Decoder::kKind, 32)) {
    return launch_expert_tile<Decoder, false>;
  } else {
    return fine ? launch_expert_tile<Decoder, true> : launch_expert_tile<Decoder, false>;
  }
}

}  // namespace walsh::cuda::detail
