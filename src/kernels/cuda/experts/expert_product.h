// Products of the rows of a batch with the matrices of their experts, without the host: blocks find
// their expert in a list of items (expert_slots.h).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {

struct ExpertBatch {
  ExpertPlan plan;
  int64_t slots = 0, experts = 0;
  const ExpertItem* items = nullptr;  // plan.places(slots, experts) of them
  const int32_t* rows = nullptr;      // [slots], which input a slot reads; null: that of its number
};

// y[s * ldy + row] (+)= bias[row] + W x for every slot s with the matrix of its expert: products
// are those of expert 0, and each of its arrays, bias included, stands `stride` bytes in front of
// that of the next expert. Tiles are for codes that have_tiles() says yes to.
void multiply_experts(std::span<const Matmul> products, int64_t stride, const ExpertBatch& batch,
                      Stream stream);
void multiply_experts(std::span<const DenseMatmul> products, int64_t stride,
                      const ExpertBatch& batch, Stream stream);

// Whether products with codes of a format, or with none, have tiles.
bool have_tiles(const Format& format);

// Blocks that share the tiles of an item, so that the blocks of all items that have something to do
// are one wave.
constexpr int64_t blocks_of_item(int64_t tiles, const ExpertBatch& batch, int64_t processors) {
  const int64_t distinct = batch.slots < batch.experts ? batch.slots : batch.experts;
  const int64_t active = batch.plan.grouped() ? distinct : batch.slots;
  const int64_t blocks = processors / (active > 0 ? active : 1);
  return blocks < 1 ? 1 : blocks < tiles ? blocks : tiles;
}

}  // namespace walsh::cuda
