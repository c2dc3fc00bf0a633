// Launches GEMM tiles for products of experts with many vectors.
#pragma once

#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/gemm/int8_tile.h"

namespace walsh::cuda::detail {

struct ExpertTileLaunch {
  TileLaunch tiles;                   // They have inputs of expert 0 and y of slot 0.
  int64_t stride = 0;                 // Experts are this many bytes apart.
  const ExpertItem* items = nullptr;  // Its shape is [places].
  // It has the input row of each slot; null: that of its own number.
  const int32_t* rows = nullptr;
  int64_t places = 0;
};

// Launches tiles. Returns false if the device lacks the shared memory or the instructions, or if
// there are no such tiles for the codes.
using ExpertTileLauncher = bool (*)(TileShape shape, ExpertTileLaunch& work, Stream stream);
template <typename Decoder>
ExpertTileLauncher expert_tile(bool fine);  // expert_tile.cuh defines it.

// Returns where byte `byte` of a chunk of 128 columns of Activations::q is in a row of the warp
// group operand, before the swizzle. The operand has the columns of product i together, and those
// of the two register halves separately, as in the weights' fragments.
constexpr int operand_byte(int byte) {
  // `lane` is of a quad, `half` of products.
  const int word = byte / 4, lane = word / 8, half = word % 8;
  return half * 16 + lane * 4 + byte % 4;
}

// Multiplies experts with tiles of one shape, or of a smaller one if the device or the codes lack
// it.
void multiply_experts_by_tiles(std::span<const Matmul> products, int64_t stride,
                               const ExpertBatch& batch, TileShape shape, Stream stream);

}  // namespace walsh::cuda::detail
