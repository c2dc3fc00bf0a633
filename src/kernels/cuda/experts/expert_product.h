// Products of the rows of a batch with the matrices of their experts, without the host: blocks find
// their expert in a list of items (expert_slots.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {

struct ExpertBatch {
  ExpertPlan plan;
  int64_t slots = 0, experts = 0;
  const ExpertItem* items = nullptr;  // plan.places(slots, experts) of them
  const int32_t* rows = nullptr;      // [slots], which input a slot reads; null: that of its number
};

// What the products of few slots do beside multiplying, which saves launches around them.
struct ExpertTail {
  // Inputs are made from the rows of slots, in the forms whose `out` products name as inputs, which
  // themselves are not written; else they are there. can_make_inputs(forms).
  bool makes_inputs = false;
  InputSource source;
  std::span<const InputForm> forms;
  GateClamp clamp;
  // The last product's results, of kMaxVectors rows at most, are added up.
  SumByBlocks sum;
};
// Whether blocks of products can: segments of rotations are no longer than a k-tile.
inline bool can_make_inputs(std::span<const InputForm> forms) {
  for (const InputForm& form : forms) {
    const bool rotated = form.rotation.kind != RotationKind::none;
    if (form.out == nullptr || (rotated && form.rotation.block > kKTileColumns)) return false;
  }
  return true;
}
// Counters of SumByBlocks::arrived.
inline constexpr int64_t kMostItemBlocks = 256;
inline constexpr int64_t kSumCounters = kMaxVectors * kMostItemBlocks;

// y[s * ldy + row] (+)= bias[row] + W x for every slot s with the matrix of its expert: products
// are those of expert 0, and each of its arrays, bias included, stands `stride` bytes in front of
// that of the next expert. Tiles are for codes that have_tiles() says yes to. With a tail the plan
// has no tiles, and between the choice and this call was another product of experts.
void multiply_experts(std::span<const Matmul> products, int64_t stride, const ExpertBatch& batch,
                      Stream stream, const ExpertTail* tail = nullptr);
void multiply_experts(std::span<const DenseMatmul> products, int64_t stride,
                      const ExpertBatch& batch, Stream stream);

// Whether products with codes of a format, or with none, have tiles.
bool have_tiles(const Format& format);

// Items that have something to do, if slots had experts by chance.
constexpr int64_t active_items(const ExpertBatch& batch) {
  if (!batch.plan.grouped()) return batch.slots;
  double unused = static_cast<double>(batch.experts);
  for (int64_t slot = 0; slot < batch.slots && unused >= 1; ++slot)
    unused -= unused / static_cast<double>(batch.experts);
  return batch.experts - static_cast<int64_t>(unused);
}

// Blocks that share the tiles of an item, so that waves of blocks, of which a multiprocessor has
// one at a time, are few and full.
constexpr int64_t blocks_of_item(int64_t tiles, const ExpertBatch& batch, int64_t processors) {
  constexpr int64_t kStart = 8;  // what a block takes to start, in tiles
  const int64_t active = active_items(batch);
  const int64_t most = tiles < kMostItemBlocks ? tiles : kMostItemBlocks;
  int64_t best = 1, least = std::numeric_limits<int64_t>::max();
  for (int64_t blocks = 1; blocks <= most; ++blocks) {
    const int64_t waves = (active * blocks + processors - 1) / processors;
    const int64_t time = waves * ((tiles + blocks - 1) / blocks + kStart);
    if (time >= least) continue;
    best = blocks;
    least = time;
  }
  return best;
}

}  // namespace walsh::cuda
