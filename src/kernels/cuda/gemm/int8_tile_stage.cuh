// Defines what a step of the tile kernel needs in shared memory: codes, scales and offsets of the
// block's rows, and one plane of its vectors' columns. Asynchronous copies load all of it.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemm/int8_tile.h"
#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda::detail {

// Copies 4 bytes from global to shared memory.
__device__ __forceinline__ void copy_word(uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

// Says where the inputs of a block's vectors are. They are consecutive rows or, with `Grouped`, the
// rows that a list in shared memory names (times the number of planes). Its first entry belongs to
// the block's first vector.
template <bool Grouped>
struct InputRows {
  const int* list;

  __device__ __forceinline__ int of(int first_token, int token, int planes) const {
    if constexpr (Grouped) return list[token];
    return (first_token + token) * planes;
  }
};

// Holds one step of a group of warps: 2 WM tiles of rows and 8 NT vectors.
template <typename Decoder, bool Fine, int WM, int NT>
struct TileStage {
  static constexpr int kTiles = WM * 2, kTokens = NT * 8;
  // A k-tile has this many scales: one per 32 or 128 columns.
  static constexpr int kSteps = Fine ? 8 : 2;

  uint4 codes[kTiles][Decoder::kVectors][32];
  // 16-byte units are permuted: unit u of vector v is at u ^ (v & 1).
  uint4 q[kTokens][16];
  uint32_t scales[kTiles][kSteps][8];
  uint32_t offsets[kTiles][8];
  float x_scales[kSteps][kTokens];
  int sums[2][kTokens];
};

// Fills a stage with the threads of a group of warps. `Stage` is TileStage, or a type that places
// inputs elsewhere.
template <typename Stage, typename Decoder, int Threads, bool Grouped>
struct TileLoads {
  static constexpr int kVectors = Decoder::kVectors;  // They hold codes.
  static constexpr int kTiles = Stage::kTiles, kTokens = Stage::kTokens, kSteps = Stage::kSteps;
  static constexpr bool kFine = kSteps > 2;
  static constexpr int kGroupThreads = Threads;

  // The members of TileInput are read before the first copy, because behind a copy the compiler
  // would read them again from shared memory, where those of experts are.

  // Loads codes, scales and offsets of the rows for one k-tile.
  static __device__ __forceinline__ void load_weights(Stage& stage, const TileInput& p,
                                                      int first_tile, int k_tile) {
    const int thread = threadIdx.x % kGroupThreads;
    const int k_tiles = p.cols / kKTileColumns, last = p.tiles - 1;
    const uint4* codes = p.codes;
    const uint32_t *scales = p.scales, *offsets = p.offsets;
    const int groups = p.groups, group_shift = p.group_shift;
    const int offset_groups = p.offset_groups, offset_shift = p.offset_shift;
#pragma unroll
    for (int k = thread; k < kTiles * kVectors * 32; k += kGroupThreads) {
      const int tile = min(first_tile + k / (kVectors * 32), last);
      copy_async(shared_address(&stage.codes[0][0][0] + k),
                 codes + static_cast<int64_t>(tile * k_tiles + k_tile) * (kVectors * 32) +
                     k % (kVectors * 32));
    }
    for (int k = thread; k < kTiles * kSteps * 2; k += kGroupThreads) {
      const int tile = min(first_tile + k / (kSteps * 2), last), s = k / 2 % kSteps;
      const int group = (k_tile * kKTileColumns + s * (kKTileColumns / kSteps)) >> group_shift;
      copy_async(shared_address(&stage.scales[0][0][0] + k * 4),
                 scales + (static_cast<int64_t>(tile) * groups + group) * 8 + k % 2 * 4);
    }
    if (offsets == nullptr) return;
    for (int k = thread; k < kTiles * 2; k += kGroupThreads) {
      const int tile = min(first_tile + k / 2, last);
      const int group = (k_tile * kKTileColumns) >> offset_shift;
      copy_async(shared_address(&stage.offsets[0][0] + k * 4),
                 offsets + (static_cast<int64_t>(tile) * offset_groups + group) * 8 + k % 2 * 4);
    }
  }

  // Returns the row of the inputs that holds one plane of a vector. Vectors from m on are not
  // copied; their results are not stored, and do not influence any other result.
  struct PlaneRows {
    InputRows<Grouped> rows;
    int first_token, planes, plane;

    __device__ __forceinline__ int64_t operator()(int token) const {
      return rows.of(first_token, token, planes) + plane;
    }
  };

  // Loads one plane of a k-tile of the first `left` vectors.
  static __device__ __forceinline__ void load_inputs(Stage& stage, const TileInput& p,
                                                     const PlaneRows& row_of, int left,
                                                     int k_tile) {
    const int thread = threadIdx.x % kGroupThreads;
    const int cols = p.cols;
    // Each thread keeps its unit and goes through the vectors.
    const int unit = thread % 16;
    constexpr int kStride = kGroupThreads / 16;
    const int8_t* from = p.q + k_tile * kKTileColumns + unit * 16;
#pragma unroll
    for (int token = thread / 16; token < kTokens; token += kStride) {
      if (token < left)
        copy_async(shared_address(&stage.q[token][unit ^ (token & 1)]),
                   from + row_of(token) * cols);
    }
  }

  // Loads the scales of the vectors, and their sums if the weights have offsets.
  static __device__ __forceinline__ void load_input_scales(Stage& stage, const TileInput& p,
                                                           const PlaneRows& row_of, int left,
                                                           int k_tile) {
    const int thread = threadIdx.x % kGroupThreads;
    const int cols = p.cols, x_shift = p.x_shift, x_groups = cols >> x_shift;
    const float* x_scales = p.x_scales;
    const int32_t* all_sums = p.offsets == nullptr ? nullptr : p.sums;
    for (int k = thread; k < kTokens * kSteps; k += kGroupThreads) {
      const int token = k / kSteps, s = k % kSteps;
      const int group = (k_tile * kKTileColumns + s * (kKTileColumns / kSteps)) >> x_shift;
      if (token < left)
        copy_word(shared_address(&stage.x_scales[s][token]),
                  x_scales + row_of(token) * x_groups + group);
    }
    if constexpr (kFine) return;
    if (all_sums == nullptr) return;
    for (int k = thread; k < kTokens * 2; k += kGroupThreads) {
      const int token = k / 2, c = k % 2;
      if (token < left) {
        copy_word(shared_address(&stage.sums[c][token]),
                  all_sums + row_of(token) * (cols / 128) + 2 * k_tile + c);
      }
    }
  }

  static __device__ __forceinline__ void load(Stage& stage, const TileInput& p,
                                              InputRows<Grouped> rows, int first_tile,
                                              int first_token, int m, int step) {
    const int k_tile = step / p.planes, left = m - first_token;
    const PlaneRows row_of{rows, first_token, p.planes, step - k_tile * p.planes};
    load_weights(stage, p, first_tile, k_tile);
    load_inputs(stage, p, row_of, left, k_tile);
    load_input_scales(stage, p, row_of, left, k_tile);
  }
};

}  // namespace walsh::cuda::detail
