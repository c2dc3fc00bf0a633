// What the kernels for 17 to 256 vectors (gemm/batch_tile.cuh) are launched with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/cuda/gemv/gemv.h"

struct uint4;
struct float4;

namespace walsh::cuda::detail {

// How inputs lie for a kind of code: a byte of an operand is one input, or, for codes whose
// weights are sums of two bytes, every pair of inputs stands twice (weights/trellis_decoder.cuh).
enum class BatchForm : uint8_t { plain, doubled };

// Bytes of an operand row that 128 columns take: the tensor cores' swizzle has rows of 128 bytes.
constexpr int batch_rows128(BatchForm form) {
  return form == BatchForm::doubled ? 2 : 1;
}

// A step, one plane of a k-tile, of the inputs of one block of vectors:
//   operands  [2 chunks][rows128][vectors][128], 16-byte units permuted by the 128-byte swizzle
//   scales    float [2][vectors], doubled: float2 with what is added to the sum times the scale
//   totals    float [vectors], plain only: the sum of the inputs
constexpr int batch_operand_bytes(BatchForm form, int vectors) {
  return 2 * batch_rows128(form) * vectors * 128;
}
constexpr int batch_step_bytes(BatchForm form, int vectors) {
  return batch_operand_bytes(form, vectors) +
         vectors * (form == BatchForm::doubled ? 2 * 8 : 2 * 4 + 4);
}

// Shapes of a block: vectors, and warp groups of 64 rows each.
struct BatchShape {
  int vectors = 0, groups = 0;
};

// One pass of one product.
struct BatchMatrix {
  const uint4* codes = nullptr;
  const uint32_t* scales = nullptr;       // fp16 pairs
  const uint32_t* offsets = nullptr;      // or null
  const uint32_t* row_factors = nullptr;  // or null
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int rows = 0, tiles = 0;
  int first_block = 0;  // of blocks of rows
  bool add = false;
};

struct BatchLaunch {
  BatchMatrix matrix[kMaxMatmuls];
  int count = 0;
  LevelTable levels{};
  float unit = 1, inverse_unit = 1;  // of the levels
  int groups = 0, group_shift = 0;   // group of a column = column >> shift
  int offset_groups = 0, offset_shift = 0;
  const std::byte* inputs = nullptr;  // [vector block][step], batch_step_bytes() each
  int m = 0, vector_blocks = 0;
  int k_tiles = 0, planes = 1;
  int row_blocks = 0;  // of all matrices
  int input_stages = 0;
  // Blocks of results that several blocks of the launch have parts of.
  float4* parts = nullptr;
  int* arrived = nullptr;
};

// What the inputs are packed from.
struct BatchPack {
  const int8_t* q = nullptr;
  const float* x_scales = nullptr;
  const int32_t* sums = nullptr;
  std::byte* to = nullptr;
  int m = 0, cols = 0, planes = 1;
  int vectors = 0;  // of a block
  BatchForm form = BatchForm::plain;
};
void pack_batch(const BatchPack& pack, Stream stream);

// Values of a block of results at most, so many parts of blocks has a launch at most.
inline constexpr int kBatchValues = 128 * 128;

// False if the device lacks the instructions, or codes have no such kernel. With launch = null it
// only says so.
using BatchLauncher = bool (*)(BatchShape shape, BatchLaunch* launch, Stream stream);
template <typename Decoder>
bool launch_batch(BatchShape shape, BatchLaunch* launch, Stream stream);

}  // namespace walsh::cuda::detail
