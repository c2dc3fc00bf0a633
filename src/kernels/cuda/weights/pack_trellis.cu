#include "kernels/cuda/weights/pack_trellis.h"

#include <cuda_fp16.h>

#include <bit>

#include "codec/trellis/cuda/trellis_layout.h"
#include "codec/trellis/trellis.h"
#include "kernels/cuda/launch.h"

namespace walsh::cuda::detail {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockColumns = 32;
constexpr int kMostWords = 16;

struct TrellisShape {
  int64_t rows, tiles, k_tiles;
  int64_t stored_tiles;  // A row of tiles has this many tiles of 16 columns.
  int64_t padded;        // It is the number of stored columns.
  int64_t groups;        // It is the number of groups of Matrix::group columns.
  int group;
  int step_bytes;  // Eight steps take this much, which equals the bits of one step.
  int blocks;      // A row has this many column blocks.
  bool block_scales;
};

// Packs trellis codes. Each thread writes the words of one lane and k-tile.
__global__ void pack_codes(const uint8_t* stored, uint32_t* out, TrellisShape shape) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int lane = static_cast<int>(index % 32);
  const int64_t k_tile = index / 32 % shape.k_tiles, tile = index / 32 / shape.k_tiles;
  if (tile >= shape.tiles) return;
  const int bytes = shape.step_bytes, count = 2 * bytes;
  uint32_t words[kMostWords] = {};
  for (int q = 0; q < kTrellisGroups; ++q) {
    const int64_t column_tile = (k_tile * kTrellisGroups + q) * 4 + lane % 4;
    if (column_tile >= shape.stored_tiles) continue;
    const uint8_t* from = stored + (tile * shape.stored_tiles + column_tile) * 16 * bytes +
                          trellis_tile_byte(bytes, lane);
    for (int i = 0; i < 2 * bytes; ++i) {
      const int place = trellis_byte(bytes, q, i);
      words[place / 4] |= uint32_t{from[i]} << (8 * (place % 4));
    }
  }
  uint32_t* to = out + (tile * shape.k_tiles + k_tile) * 32 * count;
  for (int i = 0; i < count; ++i) {
    const int in_vector = count - i / 4 * 4 < 4 ? 2 : 4;  // The last vector may be half as long.
    to[i / 4 * 128 + lane * in_vector + i % 4] = words[i];
  }
}

// Returns which row is number `i` of 16 in the order of scales.
__device__ int row_of(int i) {
  return i / 2 + 8 * (i % 2);
}

// Makes [tile][group][g][2] from scales per row and block, or from scales of column blocks.
__global__ void pack_scales(const __half* stored, __half* out, TrellisShape shape) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t group = index / kTileRows % shape.groups;
  const int64_t tile = index / kTileRows / shape.groups;
  if (tile >= shape.tiles) return;
  const int64_t row = tile * kTileRows + row_of(static_cast<int>(index % kTileRows));
  const int64_t column = group * shape.group;
  __half value = __float2half_rn(0.0f);
  if (row < shape.rows && column < shape.padded) {
    const int64_t block = column_block(column, shape.padded);
    value = stored[shape.block_scales ? row * shape.blocks + block : block];
  }
  out[index] = value;
}

// Makes [tile][g][2] from the factors of the rows, or ones if there are none.
__global__ void pack_rows(const __half* stored, __half* out, TrellisShape shape) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t tile = index / kTileRows;
  if (tile >= shape.tiles) return;
  const int64_t row = tile * kTileRows + row_of(static_cast<int>(index % kTileRows));
  const bool factor = !shape.block_scales && row < shape.rows;
  out[index] = factor ? stored[row] : __float2half_rn(1.0f);
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

int64_t trellis_group(int64_t cols) {
  const int64_t tail = (cols + 31) / 32 * 32 % kColumnBlock;
  return std::popcount(static_cast<uint64_t>(tail)) > 1 ? kBlockColumns : kColumnBlock;
}

void pack_trellis(const Matrix& m, const Format& format, int64_t cols, const StoredPass& stored,
                  Stream stream) {
  const TrellisCode& code = format.trellis;
  TrellisShape shape{};
  shape.rows = m.rows;
  shape.tiles = m.tiles();
  shape.k_tiles = m.cols / kKTileColumns;
  shape.padded = padded_cols(format, cols);
  shape.stored_tiles = shape.padded / kTileCols;
  shape.groups = m.groups();
  shape.group = static_cast<int>(m.group);
  shape.step_bytes = code.step_bits;
  shape.blocks = static_cast<int>(column_blocks(shape.padded));
  shape.block_scales = code.block_scales;
  pack_codes<<<blocks_for(shape.tiles * shape.k_tiles * 32), kThreads, 0, stream>>>(
      static_cast<const uint8_t*>(stored.codes), m.codes.as<uint32_t>(), shape);
  check_launch("weight packing");
  const void* scales = code.block_scales ? stored.scales : stored.col_scales;
  pack_scales<<<blocks_for(shape.tiles * shape.groups * kTileRows), kThreads, 0, stream>>>(
      static_cast<const __half*>(scales), m.scales.as<__half>(), shape);
  check_launch("scale packing");
  pack_rows<<<blocks_for(shape.tiles * kTileRows), kThreads, 0, stream>>>(
      static_cast<const __half*>(stored.scales), m.row_factors.as<__half>(), shape);
  check_launch("scale packing");
}

}  // namespace walsh::cuda::detail
