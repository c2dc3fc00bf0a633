// Implements the tile kernel of int8_gemm, which uses int8 tensor cores and decodes weights in
// registers.
//
// A block of WM * WK warps makes 32 WM rows by 8 NT vectors of y. A warp has 32 rows (two tiles of
// weights/matrix.h) and all vectors of the block; WK > 1 groups of WM warps take turns at the
// k-tiles of 256 columns and are summed at the end. Asynchronous copies bring codes, inputs and
// their scales of a k-tile, some stages ahead. Codes become int8 fragments by byte permutes once
// per k-tile and serve all vectors. Accumulators start at 1.5 * 2^23 as bit patterns, so that
// integer sums below 2^22 are floats after one subtraction, or their products with a scale after
// one fma.
#pragma once

#include <algorithm>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/int8_tile_products.cuh"
#include "kernels/cuda/gemm/int8_tile_stage.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {

template <typename Decoder, bool Fine, int WM, int WK, int NT, bool Grouped = false>
struct TileKernel {
  using Stage = TileStage<Decoder, Fine, WM, NT>;
  using Loads = TileLoads<Stage, Decoder, WM * 32, Grouped>;
  using Products = TileProducts<Decoder, Fine, NT, Stage>;
  static constexpr int kThreads = WM * WK * 32;
  static constexpr int kGroupThreads = WM * 32;  // These threads share stages.
  static constexpr int kRows = WM * 32, kTiles = WM * 2, kTokens = NT * 8;

  static size_t shared_bytes(int stages) {
    const size_t sums = static_cast<size_t>(WK - 1) * kRows * kTokens * sizeof(float);
    return std::max(sizeof(Stage) * WK * static_cast<size_t>(stages), sums);
  }

  // Adds up the sums of the groups of warps in order.
  static __device__ void join_groups(float* shared, int warp, int lane, float (&y)[2][NT][4]) {
    __syncthreads();  // All stages have been read.
    const int group = warp / WM;
    constexpr int kValues = 8 * NT;
    const int mine = warp % WM * 32 + lane;
    if (group > 0) {
      float* out = shared + static_cast<int64_t>(group - 1) * kValues * kGroupThreads + mine;
#pragma unroll
      for (int k = 0; k < kValues; ++k)
        out[k * kGroupThreads] = y[k / (4 * NT)][k / 4 % NT][k % 4];
    }
    __syncthreads();
    if (group > 0) return;
    for (int other = 0; other < WK - 1; ++other) {
      const float* in = shared + static_cast<int64_t>(other) * kValues * kGroupThreads + mine;
#pragma unroll
      for (int k = 0; k < kValues; ++k)
        y[k / (4 * NT)][k / 4 % NT][k % 4] += in[k * kGroupThreads];
    }
  }

  static __device__ void run(const TileLaunch& launch, int stages, unsigned char* shared) {
    int block = blockIdx.x / launch.token_blocks, which = 0;
    while (which + 1 < launch.count && block >= launch.input[which + 1].first_block)
      ++which;
    const TileInput& p = launch.input[which];
    multiply(p, {nullptr}, block - p.first_block, blockIdx.x % launch.token_blocks * kTokens,
             launch.m, stages, shared);
  }

  // Multiplies the rows of block `block` of the weights by the vectors [first_token, m), but by at
  // most kTokens of them.
  static __device__ __forceinline__ void multiply(const TileInput& p, InputRows<Grouped> rows,
                                                  int block, int first_token, int m, int stages,
                                                  unsigned char* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / WM;
    const int first_tile = block * kTiles, tile = warp % WM * 2;
    Stage* ring = reinterpret_cast<Stage*>(shared) + group * stages;

    const int used = (m - first_token + 7) / 8;
    float y[2][NT][4] = {};
    const int steps = p.cols / kKTileColumns * p.planes;
    // This group takes the steps group, group + WK, ...
    const int mine = steps / WK + (group < steps % WK ? 1 : 0);
    const int rounds = (steps + WK - 1) / WK;  // All groups make as many rounds, to stay in step.
    for (int k = 0; k < stages - 1; ++k) {
      if (k < mine) Loads::load(ring[k], p, rows, first_tile, first_token, m, group + k * WK);
      copy_commit();
    }
    int slot = 0;
    for (int k = 0; k < rounds; ++k) {
      if (stages == 2) {
        copy_wait<0>();
      } else {
        copy_wait<1>();
      }
      __syncthreads();  // This step has arrived, and no thread still reads the one before.
      const int next = k + stages - 1, free = slot == 0 ? stages - 1 : slot - 1;
      if (next < mine) {
        Loads::load(ring[free], p, rows, first_tile, first_token, m, group + next * WK);
      }
      copy_commit();
      if (k < mine) {
        Products::multiply(ring[slot], p, tile, lane, used, y);
      }
      slot = slot + 1 == stages ? 0 : slot + 1;
    }
    if constexpr (WK > 1) {
      copy_wait<0>();
      join_groups(reinterpret_cast<float*>(shared), warp, lane, y);
      if (group > 0) return;
    }
    Products::store(p, (first_tile + tile) * 16, first_token, m, lane, y);
  }
};

template <typename Decoder, bool Fine, int WM, int WK, int NT>
__global__ void __launch_bounds__(WM* WK * 32)
    int8_tile_kernel(const __grid_constant__ TileLaunch launch, int stages) {
  extern __shared__ __align__(16) unsigned char tile_shared[];
  wait_previous_kernel();
  TileKernel<Decoder, Fine, WM, WK, NT>::run(launch, stages, tile_shared);
}

// Launches blocks of this shape. Returns false if a block needs more shared memory than the device
// has.
template <typename Decoder, bool Fine, int WM, int WK, int NT>
bool launch_blocks(TileLaunch& work, Stream stream) {
  using Kernel = TileKernel<Decoder, Fine, WM, WK, NT>;
  constexpr int kMostStages = 3;
  const size_t limit = current_device().shared_bytes;
  int stages = kMostStages;
  while (stages > 1 && Kernel::shared_bytes(stages) > limit)
    --stages;
  if (stages < 2) return false;
  int blocks = 0;
  for (int k = 0; k < work.count; ++k) {
    work.input[k].first_block = blocks;
    blocks += (work.input[k].rows + Kernel::kRows - 1) / Kernel::kRows;
  }
  work.token_blocks = (work.m + Kernel::kTokens - 1) / Kernel::kTokens;
  cuda::launch("int8 gemm tile", int8_tile_kernel<Decoder, Fine, WM, WK, NT>,
               {dim3(static_cast<unsigned>(blocks * work.token_blocks)), dim3(Kernel::kThreads),
                Kernel::shared_bytes(stages)},
               stream, work, stages);
  return true;
}

// Launches one of the shapes of blocks that are compiled.
template <typename Decoder, bool Fine>
bool launch_tile(TileShape shape, TileLaunch& work, Stream stream) {
  switch (shape) {
    case TileShape::group:
      return false;
    case TileShape::large:
      return launch_blocks<Decoder, Fine, 8, 1, 16>(work, stream);
    case TileShape::medium:
      return launch_blocks<Decoder, Fine, 2, 4, 8>(work, stream);
    case TileShape::small:
      return launch_blocks<Decoder, Fine, 2, 1, 8>(work, stream);
  }
  return false;
}

}  // namespace walsh::cuda::detail
