// Products of a batch's rows with the matrices of their experts, without involving the host: blocks
// find their expert in a list of items (expert_slots.h).
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
  const ExpertItem* items = nullptr;  // plan.places(slots, experts) items
  const int32_t* rows = nullptr;      // [slots]: the input row of each slot; null: its own number
};

// Work that products of few slots do themselves to save launches before and after.
struct ExpertTail {
  // Makes the inputs from the rows of slots, in the forms whose `out` the products name as inputs
  // (and which are not written). Requires can_make_inputs(forms).
  bool makes_inputs = false;
  InputSource source;
  std::span<const InputForm> forms;
  GateClamp clamp;
  // Adds up the last product's results, for at most kMaxVectors rows.
  SumByBlocks sum;
};
// Whether blocks of products can make inputs: rotation segments must not exceed a k-tile.
inline bool can_make_inputs(std::span<const InputForm> forms) {
  for (const InputForm& form : forms) {
    const bool rotated = form.rotation.kind != RotationKind::none;
    if (form.out == nullptr || (rotated && form.rotation.block > kKTileColumns)) return false;
  }
  return true;
}
// Most counters per row in SumByBlocks::arrived.
inline constexpr int64_t kMostItemBlocks = 256;
inline constexpr int64_t kSumCounters = kMaxVectors * kMostItemBlocks;

// y[s * ldy + row] (+)= bias[row] + W x for every slot s with the matrix of its expert. `products`
// are those of expert 0; each of its arrays, bias included, lies `stride` bytes before that of the
// next expert. Plans with tiles require have_tiles(). With a tail, the plan must not have tiles,
// and another product of experts must lie between the choice and this call.
void multiply_experts(std::span<const Matmul> products, int64_t stride, const ExpertBatch& batch,
                      Stream stream, const ExpertTail* tail = nullptr);
void multiply_experts(std::span<const DenseMatmul> products, int64_t stride,
                      const ExpertBatch& batch, Stream stream);

// Whether there are tile kernels for a format's codes.
bool have_tiles(const Format& format);

// Expected number of items with slots, if experts are chosen at random.
constexpr int64_t active_items(const ExpertBatch& batch) {
  if (!batch.plan.grouped()) return batch.slots;
  double unused = static_cast<double>(batch.experts);
  for (int64_t slot = 0; slot < batch.slots && unused >= 1; ++slot)
    unused -= unused / static_cast<double>(batch.experts);
  return batch.experts - static_cast<int64_t>(unused);
}

// Blocks that share an item's tiles, chosen so that waves of blocks (one per multiprocessor) are
// few and full.
constexpr int64_t blocks_of_item(int64_t tiles, const ExpertBatch& batch, int64_t processors) {
  constexpr int64_t kStart = 8;  // the start of a block costs as much as this many tiles
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
