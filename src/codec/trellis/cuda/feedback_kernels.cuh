// Implements the kernels of feedback_kernels.h. The code also compiles for the host, where tests
// run it with fibers. The compiler must not contract operations into FMAs except where the code
// says so.
#pragma once

#include <cmath>
#include <cstdint>

#include "codec/trellis/cuda/feedback_kernels.h"
#include "codec/trellis/cuda/tile_search.cuh"
#include "codec/trellis/trellis.h"

namespace walsh::cuda::encoding {

inline constexpr int kTargetThreads = 128;  // A block has this many rows.
// A row has this many, one per column of a column block.
inline constexpr int kSetThreads = 128;
inline constexpr float kLargestTarget = 64;  // The CPU has the same limit.

__device__ __forceinline__ float clamped_target(float x) {
  return x < -kLargestTarget ? -kLargestTarget : kLargestTarget < x ? kLargestTarget : x;
}

// Computes targets of a tile column. A thread works on one row.
__device__ __forceinline__ void set_targets(const FeedbackArgs& args, const TileColumn& column) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTargetThreads + threadIdx.x;
  if (row >= (args.rows + kTileRows - 1) / kTileRows * kTileRows) return;
  float* out = column.targets + row / kTileRows * kTileWeights;
  const auto in_tile = static_cast<int>(row % kTileRows);
  float targets[kTileCols] = {};
  if (row < args.rows) {
    const int64_t at = row * args.size + column.col;
    const float factor = args.target_factors[row * args.blocks + column.block];
#pragma unroll
    for (int i = 0; i < kTileCols; ++i)
      targets[i] = args.sums[at + i];
#pragma unroll
    for (int i = 0; i < kTileCols; ++i) {
      targets[i] = targets[i] * args.inverse[column.col + i];
      const float* of = args.factor_row(column.col + i) + column.col;
#pragma unroll
      for (int l = i + 1; l < kTileCols; ++l)
        targets[l] = targets[l] - targets[i] * of[l];
    }
#pragma unroll
    for (int i = 0; i < kTileCols; ++i)
      targets[i] = clamped_target((targets[i] + args.x[at + i]) * factor);
  }
#pragma unroll
  for (int i = 0; i < kTileCols; ++i)
    out[tile_position(in_tile, i)] = targets[i];
}

__device__ __forceinline__ float level_of(const LevelTable& table, int state, int v) {
  const int class_bits = table.state_bits - table.step_bits;
  const int first = state >> class_bits, p = state & ((1 << class_bits) - 1);
  const int pairs = 1 << (class_bits - 1);
  const int at = ((first / 4 * pairs + p / 2) * 4 + first % 4) * 2 + p % 2;
  return table.unit * (static_cast<float>(table.levels[at * 2 + v]) - 128.0f);
}

// Rounds a tile column and feeds its errors back. A block works on one row. errors[kTileCols] is
// shared.
__device__ __forceinline__ void set_row(const FeedbackArgs& args, const TileColumn& column,
                                        const LevelTable& table, float* errors) {
  const int64_t row = blockIdx.x, at = row * args.size;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kTileCols) {
    const uint16_t* states = column.states + row / kTileRows * kTileWeights;
    const int t = tile_position(static_cast<int>(row % kTileRows), thread);
    const float level = level_of(table, states[t / 2], t % 2);
    const float value = args.level_factors[row * args.blocks + column.block] * level;
    const float error = args.x[at + column.col + thread] - value;
    args.rounded[at + column.col + thread] = value;
    args.errors[at + column.col + thread] = error;
    errors[thread] = error;
  }
  __syncthreads();
  const int64_t block_end = (column.col / kFeedbackColumns + 1) * kFeedbackColumns;
  const int64_t end = args.size < block_end ? args.size : block_end;
  for (int64_t l = column.col + 1 + thread; l < end; l += kSetThreads) {
    float sum = args.sums[at + l];
#pragma unroll
    for (int i = 0; i < kTileCols; ++i) {
      if (column.col + i < l) {
        sum = sum + errors[i] * args.factor_row(column.col + i)[l];
      }
    }
    args.sums[at + l] = sum;
  }
}

inline constexpr int kProductTile = 64, kProductDepth = 32, kProductThreads = 256;
struct ProductMemory {
  float a[kProductDepth][kProductTile + 4], b[kProductDepth][kProductTile];
};

// Computes 64 rows and 64 columns of the product. Every element is one chain of FMAs in the order
// of the depth.
__device__ __forceinline__ void add_product(const FeedbackArgs& args, const FactorProduct& product,
                                            ProductMemory& memory) {
  constexpr int kPart = 4;
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kProductTile;
  const int64_t col0 = product.first + static_cast<int64_t>(blockIdx.x) * kProductTile;
  const int64_t row = row0 + thread / 16 * kPart, col = col0 + thread % 16 * kPart;
  float sums[kPart][kPart] = {};
  for (int i = 0; i < kPart; ++i) {
    for (int j = 0; j < kPart; ++j) {
      if (row + i < args.rows && col + j < args.size) {
        sums[i][j] = product.c[(row + i) * args.size + col + j];
      }
    }
  }
  for (int64_t begin = product.begin; begin < product.end; begin += kProductDepth) {
    __syncthreads();
    for (int i = thread; i < kProductDepth * kProductTile; i += kProductThreads) {
      const int64_t r = row0 + i / kProductDepth, c = col0 + i % kProductTile;
      memory.a[i % kProductDepth][i / kProductDepth] =
          r < args.rows ? product.a[r * args.size + begin + i % kProductDepth] : 0;
      memory.b[i / kProductTile][i % kProductTile] =
          c < args.size ? args.factor_row(begin + i / kProductTile)[c] : 0;
    }
    __syncthreads();
#pragma unroll 8
    for (int t = 0; t < kProductDepth; ++t) {
      const auto a = *reinterpret_cast<const SomeFloats<4>*>(&memory.a[t][thread / 16 * kPart]);
      const auto b = *reinterpret_cast<const SomeFloats<4>*>(&memory.b[t][thread % 16 * kPart]);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
#pragma unroll
        for (int j = 0; j < kPart; ++j)
          sums[i][j] = fmaf(a.v[i], b.v[j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < kPart; ++i) {
    for (int j = 0; j < kPart; ++j) {
      if (row + i < args.rows && col + j < args.size) {
        product.c[(row + i) * args.size + col + j] = sums[i][j];
      }
    }
  }
}

inline constexpr int kFactorThreads = 128;

// Computes the factor of a row per block. Its threads compute the terms of the two sums; for each
// sum one thread adds them up in the order of the columns. terms[2][kFactorThreads] is shared.
__device__ __forceinline__ void row_factor(const FeedbackArgs& args, double* factors,
                                           double* terms) {
  const int64_t row = blockIdx.x, at = row * args.size;
  const auto thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int64_t begin = 0; begin < args.size; begin += kFactorThreads) {
    const int64_t left = args.size - begin;
    const int count = left < kFactorThreads ? static_cast<int>(left) : kFactorThreads;
    __syncthreads();
    if (thread < count) {
      const int64_t j = begin + thread;
      const double q = args.products[at + j];
      const double e =
          static_cast<double>(args.sums[at + j]) +
          static_cast<double>(args.errors[at + j]) * static_cast<double>(args.diagonal[j]);
      terms[thread] = e * q;
      terms[kFactorThreads + thread] = q * q;
    }
    __syncthreads();
    if (thread % 32 == 0 && thread < 64) {
      const double* own = terms + thread / 32 * kFactorThreads;
      for (int i = 0; i < count; ++i)
        sum = sum + own[i];
    }
  }
  __syncthreads();
  if (thread == 32) terms[0] = sum;
  __syncthreads();
  if (thread == 0) factors[row] = terms[0] > 0 ? 1 + sum / terms[0] : 1;
}

}  // namespace walsh::cuda::encoding
