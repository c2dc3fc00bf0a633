// Tiles of experts' products with many vectors.
#pragma once

#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/gemm/int8_tile.h"

namespace walsh::cuda::detail {

struct ExpertTileLaunch {
  TileLaunch tiles;                   // inputs of expert 0, y of slot 0
  int64_t stride = 0;                 // from expert to expert, in bytes
  const ExpertItem* items = nullptr;  // [places]
  const int32_t* rows = nullptr;      // of slots, or null
  int64_t places = 0;
};

// False if the device lacks the shared memory or the instructions, or codes have no such tiles.
using ExpertTileLauncher = bool (*)(TileShape shape, ExpertTileLaunch& work, Stream stream);
template <typename Decoder>
ExpertTileLauncher expert_tile(bool fine);  // one file per decoder

// Where byte `byte` of a chunk of 128 columns of Activations::q is in a row of the operand of warp
// groups (before the swizzle): the columns of product i, those of registers' halves apart, as
// fragments of weights have them.
constexpr int operand_byte(int byte) {
  const int word = byte / 4, lane = word / 8, half = word % 8;  // of a quad; of products
  return half * 16 + lane * 4 + byte % 4;
}

// multiply_experts by tiles of one shape, or of a smaller one where the device or the codes have no
// such tiles.
void multiply_experts_by_tiles(std::span<const Matmul> products, int64_t stride,
                               const ExpertBatch& batch, TileShape shape, Stream stream);

}  // namespace walsh::cuda::detail
