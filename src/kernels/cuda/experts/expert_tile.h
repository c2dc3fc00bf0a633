// Launches GEMM tiles for products of experts with many vectors.
#pragma once

#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/gemm/int8_tile.h"

namespace walsh::cuda::detail {

struct ExpertTileLaunch {
  TileLaunch tiles;                   // inputs of expert 0, y of slot 0
  int64_t stride = 0;                 // bytes between experts
  const ExpertItem* items = nullptr;  // [places]
  const int32_t* rows = nullptr;      // input row of each slot; null: its own number
  int64_t places = 0;
};

// Returns false if the device lacks the shared memory or the instructions, or there are no such
// tiles for the codes.
using ExpertTileLauncher = bool (*)(TileShape shape, ExpertTileLaunch& work, Stream stream);
template <typename Decoder>
ExpertTileLauncher expert_tile(bool fine);  // defined in expert_tile.cuh

// Returns the position, before the swizzle, of byte `byte` of a chunk of 128 columns of
// Activations::q in a row of the warp group operand, which has the columns of product i together,
// those of the two register halves separately, as in the weights' fragments.
constexpr int operand_byte(int byte) {
  const int word = byte / 4, lane = word / 8, half = word % 8;  // of a quad; of products
  return half * 16 + lane * 4 + byte % 4;
}

// Does so with tiles of one shape, or of a smaller one if the device or the codes lack it.
void multiply_experts_by_tiles(std::span<const Matmul> products, int64_t stride,
                               const ExpertBatch& batch, TileShape shape, Stream stream);

}  // namespace walsh::cuda::detail
