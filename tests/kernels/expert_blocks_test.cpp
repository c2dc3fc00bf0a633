// How many blocks share an expert's tiles, and the layout of inputs for tiles of many slots.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_tile.h"

namespace walsh::cuda {
namespace {

ExpertBatch batch_of(int64_t rows, int64_t chosen, int64_t experts) {
  ExpertBatch batch;
  batch.plan = plan_experts(rows, chosen, experts, true);
  batch.slots = rows * chosen;
  batch.experts = experts;
  return batch;
}

TEST(ExpertBlocks, OfOneRowAreOneWave) {
  EXPECT_EQ(blocks_of_item(96, batch_of(1, 8, 128), 132), 16);
  EXPECT_EQ(blocks_of_item(360, batch_of(1, 4, 32), 132), 33);
  EXPECT_EQ(blocks_of_item(3, batch_of(1, 1, 8), 132), 3);
}

// 83 experts of 128 have slots: three blocks to each are two full waves, one would leave 49 of 132
// multiprocessors without work.
TEST(ExpertBlocks, OfSeveralRowsFillTheirWaves) {
  EXPECT_EQ(active_items(batch_of(16, 8, 128)), 82);
  EXPECT_EQ(blocks_of_item(96, batch_of(16, 8, 128), 132), 3);
}

TEST(ExpertBlocks, AreNeverMoreThanTiles) {
  for (int64_t rows = 1; rows <= 16; ++rows) {
    for (const int64_t tiles : {1, 2, 5, 48, 1000}) {
      const int64_t blocks = blocks_of_item(tiles, batch_of(rows, 2, 8), 132);
      EXPECT_GE(blocks, 1);
      EXPECT_LE(blocks, std::min(tiles, kMostItemBlocks));
    }
  }
}

// Product i of a chunk covers columns 32 i to 32 i + 31, of which lane t of a quad has 8 t + r of
// the weights: r < 4 in the register of columns 4 t to 4 t + 3 of the instruction, others in that
// of columns 16 + 4 t to 16 + 4 t + 3.
TEST(OperandByte, IsTheColumnThatTheWeightsFragmentHas) {
  for (int column = 0; column < kChunkColumns; ++column) {
    const int i = column / 32, t = column % 32 / 8, r = column % 8;
    EXPECT_EQ(detail::operand_byte(activation_byte(column)), 32 * i + 16 * (r / 4) + 4 * t + r % 4);
  }
}

}  // namespace
}  // namespace walsh::cuda
