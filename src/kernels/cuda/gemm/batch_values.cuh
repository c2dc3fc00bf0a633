// Stores inputs of a batch in the order of stages (gemm/batch_launch.h), by k-tiles.
#pragma once

#include "kernels/cuda/gemm/batch_launch.h"

namespace walsh::cuda::detail {

// Integer sums begin with this, so that their bits are those of a float: 1.5 * 2^23 + sum.
inline constexpr int kSumBias = 0x4b400000;
inline constexpr float kSumBiasValue = 12582912.0f;

// Stores a lane's eight columns of a plane of a k-tile, which are int8 with a scale and a sum over
// the group. Scales are rounded to 22 bits, so that their products with the bias are exact.
__device__ __forceinline__ void store_batch_input(const BatchPack& to, int vector, int step,
                                                  int lane, uint2 bytes, float scale, int sum) {
  const int in_block = vector % to.vectors, eight = lane % 16;
  const int64_t steps = to.cols / kKTileColumns * to.planes;
  std::byte* at =
      to.to + (vector / to.vectors * steps + step) * int64_t{batch_stage_bytes(to.vectors)};
  // A product has 32 columns, of which a lane of a quad has four in each half of the operand.
  const bool tiles = to.order == BatchOrder::tiles;
  const int product = tiles ? eight / 8 * 2 + eight % 2 : eight / 4;
  const int quad = tiles ? eight % 8 / 2 : eight % 4;
  auto* row = reinterpret_cast<uint32_t*>(at) + (lane / 16 * to.vectors + in_block) * 32 + quad;
  row[(2 * product ^ in_block % 8) * 4] = bytes.x;
  row[((2 * product + 1) ^ in_block % 8) * 4] = bytes.y;
  const float own = static_cast<float>(sum) * scale;
  const float whole = own + __shfl_xor_sync(~0u, own, 16);
  const float five = 5 * scale, rounded = five - (five - scale);
  if (lane % 16 == 0)
    reinterpret_cast<float2*>(at + batch_scales_at(to.vectors))[lane / 16 * to.vectors + in_block] =
        make_float2(rounded, rounded * -kSumBiasValue);
  if (lane == 0) reinterpret_cast<float*>(at + batch_sums_at(to.vectors))[in_block] = whole;
}

}  // namespace walsh::cuda::detail
