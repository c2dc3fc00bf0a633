// Multiplies a batch's rows with the matrices of their experts without involving the host, because
// blocks find their expert in a list of items (expert_slots.h).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/experts/expert_share.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {

struct ExpertBatch {
  ExpertPlan plan;
  int64_t slots = 0, experts = 0;
  const ExpertItem* items = nullptr;  // It has plan.places(slots, experts) items.
  // It has the shape [slots] and the input row of each slot; null: that of its own number.
  const int32_t* rows = nullptr;
};

// Lists work that products of few slots do themselves, which saves launches before and after.
struct ExpertTail {
  // The products make their inputs from the rows of slots, in the forms whose `out` they name as
  // inputs (and which are not written). This requires can_make_inputs(forms).
  bool makes_inputs = false;
  InputSource source;
  std::span<const InputForm> forms;
  GateClamp clamp;
  // The blocks add up the last product's results, for at most kMostSummedRows rows.
  SumByBlocks sum;
};
// Returns whether blocks of products can make inputs. For that, rotation segments must not exceed a
// k-tile.
inline bool can_make_inputs(std::span<const InputForm> forms) {
  for (const InputForm& form : forms) {
    const bool rotated = form.rotation.kind != RotationKind::none;
    if (form.out == nullptr || (rotated && form.rotation.block > kKTileColumns)) return false;
  }
  return true;
}
// Products of few slots add up at most this many units of an item (expert_share.h), and this many
// rows.
inline constexpr int64_t kMostItemUnits = 256, kMostSummedRows = 16;
inline constexpr int64_t kSumCounters = kMostSummedRows * kMostItemUnits;

// Computes y[s * ldy + row] (+)= bias[row] + W x for every slot s, where W is the matrix of its
// expert. `products` are those of expert 0; each of its arrays, bias included, lies `stride` bytes
// before that of the next expert. Plans with tiles require have_tiles(). With a tail, the plan must
// not have tiles, and another product of experts must lie between the choice and this call.
void multiply_experts(std::span<const Matmul> products, int64_t stride, const ExpertBatch& batch,
                      Stream stream, const ExpertTail* tail = nullptr);
void multiply_experts(std::span<const DenseMatmul> products, int64_t stride,
                      const ExpertBatch& batch, Stream stream);

// Returns whether there are tile kernels for a format's codes.
bool have_tiles(const Format& format);

// Returns how many items with slots are to be expected if experts are chosen at random.
constexpr int64_t active_items(const ExpertBatch& batch) {
  if (!batch.plan.grouped()) return batch.slots;
  double unused = static_cast<double>(batch.experts);
  for (int64_t slot = 0; slot < batch.slots && unused >= 1; ++slot)
    unused -= unused / static_cast<double>(batch.experts);
  return batch.experts - static_cast<int64_t>(unused);
}

// Returns how an item's tiles are divided. Units are small beside what a block has if experts are
// chosen at random. Where each slot is an item, the number of items is known, and no block has two
// of them unless some block would have more tiles otherwise.
constexpr ExpertTiles expert_tiles(int tiles, const ExpertBatch& batch, int64_t processors) {
  constexpr int kMostGrain = 8, kUnits = 8;
  const int64_t share = active_items(batch) * tiles / processors;
  ExpertTiles of{tiles, kMostGrain};
  while (of.grain > 1 && share < of.grain * kUnits)
    of.grain /= 2;
  while (of.units() > kMostItemUnits)
    of.grain *= 2;
  const int64_t blocks = batch.plan.grouped() ? 0 : processors / batch.slots;
  const auto most_units = [](int64_t units, int64_t of_blocks) {
    return (units + of_blocks - 1) / of_blocks;
  };
  if (blocks > 0 &&
      most_units(of.units(), blocks) == most_units(batch.slots * of.units(), processors))
    of.blocks_of_item = static_cast<int>(blocks);
  return of;
}

}  // namespace walsh::cuda
