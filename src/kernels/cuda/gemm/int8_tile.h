// Declares the launch arguments of the tile kernels of int8_gemm.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/cuda/gemv/gemv.h"

struct uint4;

namespace walsh::cuda::detail {

// Describes one pass of one product, with its inputs.
struct TileInput {
  const uint4* codes = nullptr;
  const uint32_t* scales = nullptr;   // They are fp16 pairs.
  const uint32_t* offsets = nullptr;  // They may be null.
  LevelTable levels{};
  float unit = 1, inverse_unit = 1;  // Levels are multiplied by unit.
  int rows = 0, tiles = 0, cols = 0;
  int groups = 0, group_shift = 0;  // The group of a column is column >> shift.
  int offset_groups = 0, offset_shift = 0;
  const int8_t* q = nullptr;
  const float* x_scales = nullptr;
  const int32_t* sums = nullptr;
  int x_shift = 7, planes = 1;  // The input group of a column is column >> x_shift.
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;
  // It is in blocks of rows; the launch fills it in.
  int first_block = 0;
};

struct TileLaunch {
  TileInput input[kMaxMatmuls];
  int count = 0;
  int m = 0;
  int token_blocks = 0;
};

// Describes a pass of a product for m vectors. Throws internal for shapes that the tile kernels do
// not support.
TileInput tile_input(const Matmul& product, int pass, int64_t m);

// Names shapes of blocks with these rows and vectors: 128 x 128 with warp-group instructions, for
// experts only; 256 x 128; 64 x 64 with the columns divided among four groups of warps; 64 x 64.
enum class TileShape { group, large, medium, small };

// Launches tiles. Returns false if the device lacks the shared memory or the instructions.
using TileLauncher = bool (*)(TileShape shape, TileLaunch& work, Stream stream);
// Launches the kernels of int8_tile.cuh. With `Fine`, scales change within 128 columns.
template <typename Decoder, bool Fine>
bool launch_tile(TileShape shape, TileLaunch& work, Stream stream);

// Multiplies any number of vectors by the GEMV kernels, up to 16 at a time.
void gemm_by_gemv(std::span<const Matmul> products, int64_t m, Stream stream);

// Multiplies with tiles of one shape, or of a smaller one if the device lacks the shared memory.
void gemm_by_tiles(std::span<const Matmul> products, int64_t m, TileShape shape, Stream stream);

}  // namespace walsh::cuda::detail
