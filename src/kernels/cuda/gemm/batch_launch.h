// Declares launches of the kernels for 17 to 256 vectors (gemm/batch_tile.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/cuda/gemv/gemv.h"

struct uint4;
struct float4;

namespace walsh::cuda::detail {

// Says where codes belong: those of a lane belong to eight neighbouring columns, or to the steps of
// a trellis tile (weights/matrix.h). Inputs lie in the order of the operands that codes become.
enum class BatchOrder : uint8_t { eights, tiles };

// A stage of inputs holds a plane of 256 columns. It begins with the values, int8 [group of 128
// columns][vector][128], in the order of the operands and in the 128-byte swizzle. After them come
// float2 [group][vector], the scale and the number that cancels kSumBias, and float [vector], the
// sums that offsets are multiplied by. These functions return where the scales begin, where the
// sums begin, and how many bytes a stage has.
constexpr int batch_scales_at(int vectors) {
  return vectors * kKTileColumns;
}
constexpr int batch_sums_at(int vectors) {
  return batch_scales_at(vectors) + vectors * (kKTileColumns / kChunkColumns * 8);
}
constexpr int batch_stage_bytes(int vectors) {
  return batch_sums_at(vectors) + vectors * 4;
}

// Says how many vectors a block multiplies by the rows of how many warp groups, of 64 rows each.
struct BatchShape {
  int vectors = 0, groups = 0;
};
// Kernels are compiled for these shapes.
inline constexpr BatchShape kBatchShapes[] = {{32, 2}, {32, 3}, {64, 2},
                                              {64, 3}, {96, 3}, {128, 2}};
// Returns whether a block has few enough registers that blocks of the kernels in front and behind,
// which make inputs, run beside it. A kernel that starts early has its first codes when the wait
// for its inputs ends.
constexpr bool has_room_beside(BatchShape shape) {
  return shape.vectors == 32 || (shape.vectors == 64 && shape.groups == 2);
}
// No block of results has more values.
inline constexpr int kBatchValues = 192 * 96;
inline constexpr int kBatchMostGroups = 3;

// Describes one pass of one product.
struct BatchMatrix {
  const uint4* codes = nullptr;
  const uint32_t* scales = nullptr;       // They are fp16 pairs.
  const uint32_t* offsets = nullptr;      // They may be null.
  const uint32_t* row_factors = nullptr;  // They may be null.
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int rows = 0, tiles = 0;
  int first_block = 0;  // It counts blocks of rows.
  bool add = false;
};

struct BatchLaunch {
  BatchMatrix matrix[kMaxMatmuls];
  int count = 0;
  LevelTable levels{};
  float unit = 1, inverse_unit = 1;  // Levels are multiplied by unit.
  int groups = 0, group_shift = 0;   // The group of a column is column >> shift.
  int offset_groups = 0, offset_shift = 0;
  // Its shape is [vector block][step]; a step is a plane of a k-tile.
  const std::byte* inputs = nullptr;
  int m = 0, vector_blocks = 0;
  int k_tiles = 0, planes = 1;
  int row_blocks = 0;  // It counts those of all matrices.
  // Several blocks of the launch leave their parts of a block of results here.
  float4* parts = nullptr;
  int* arrived = nullptr;
};

// Says from what, and to where, inputs are packed.
struct BatchPack {
  const int8_t* q = nullptr;
  const float* x_scales = nullptr;
  std::byte* to = nullptr;
  int m = 0, cols = 0, planes = 1;
  int vectors = 0;  // A block has this many vectors.
  BatchOrder order = BatchOrder::eights;
};
void pack_batch(const BatchPack& pack, Stream stream);

// Launches a kernel. Returns false if the device lacks the instructions or the codes have no such
// kernel. With launch = null it only answers whether it could.
using BatchLauncher = bool (*)(BatchShape shape, BatchLaunch* launch, Stream stream);
template <typename Decoder>
bool launch_batch(BatchShape shape, BatchLaunch* launch, Stream stream);

}  // namespace walsh::cuda::detail
