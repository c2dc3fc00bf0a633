// Tests how blocks share the tiles of experts, and the layout of inputs for tiles of many slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

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

// Counts the tiles of each block's share; every tile of every item must belong to one block.
std::vector<int> tiles_of_blocks(int items, const ExpertTiles& of, int blocks) {
  std::vector<int> owners(static_cast<size_t>(items * of.tiles)), counts;
  for (int block = 0; block < blocks; ++block) {
    const ExpertShare share = share_of(items, of, block, blocks);
    int& count = counts.emplace_back();
    for (int i = 0; i < share.parts(of); ++i) {
      const ExpertPart part = part_of(share, of, i);
      const int first = (share.first_item(of) + i) * of.tiles + part.first_tile(of);
      for (int tile = 0; tile < part.tile_count(of); ++tile, ++count)
        ++owners.at(static_cast<size_t>(first + tile));
    }
  }
  EXPECT_TRUE(std::ranges::all_of(owners, [](int owner) { return owner == 1; }));
  return counts;
}

// No block has more than one unit more than others.
TEST(ExpertShare, CoversAllTilesOnce) {
  for (const ExpertTiles of : {ExpertTiles{1, 1}, {9, 8}, {96, 4}, {7, 1}}) {
    for (const int items : {0, 1, 5, 83}) {
      for (const int blocks : {1, 3, 132}) {
        tiles_of_blocks(items, of, blocks);
        int least = items * of.units(), most = 0;
        for (int block = 0; block < blocks; ++block) {
          const ExpertShare share = share_of(items, of, block, blocks);
          least = std::min(least, share.end - share.begin);
          most = std::max(most, share.end - share.begin);
        }
        EXPECT_LE(most - least, 1);
      }
    }
  }
}

// Where that costs no block more tiles, blocks of single slots have one item each.
TEST(ExpertShare, OfSingleSlotsIsOfOneItem) {
  for (const int64_t rows : {1, 2, 4}) {
    for (const int tiles : {96, 128, 360, 180, 7}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << tiles << " tiles");
      const ExpertBatch batch = batch_of(rows, 8, 128);
      const auto items = static_cast<int>(batch.slots);
      ExpertTiles of = expert_tiles(tiles, batch, 132);
      const auto counts = tiles_of_blocks(items, of, 132);
      for (int block = 0; block < 132 && of.blocks_of_item > 0; ++block)
        EXPECT_LE(share_of(items, of, block, 132).parts(of), 1);
      of.blocks_of_item = 0;
      const auto others = tiles_of_blocks(items, of, 132);
      EXPECT_LE(*std::ranges::max_element(counts), *std::ranges::max_element(others));
    }
  }
  EXPECT_EQ(expert_tiles(96, batch_of(1, 8, 128), 132).blocks_of_item, 16);
  EXPECT_EQ(expert_tiles(128, batch_of(4, 8, 128), 132).blocks_of_item, 4);
  EXPECT_EQ(expert_tiles(7, batch_of(4, 8, 128), 132).blocks_of_item, 4);
  EXPECT_EQ(expert_tiles(360, batch_of(4, 4, 32), 132).blocks_of_item, 0) << "4 of 132 are idle";
  EXPECT_EQ(expert_tiles(96, batch_of(16, 8, 128), 132).blocks_of_item, 0);
}

// However many places have slots, a block can list its items.
TEST(ExpertShare, HasFewItems) {
  const ExpertTiles of{3, 1};
  for (const int64_t places : {1, 144, 4224, 40000}) {
    const auto blocks = static_cast<int>(expert_blocks(places, 132));
    EXPECT_EQ(blocks % 132, 0);
    for (const int64_t items : {int64_t{1}, places / 2 + 1, places}) {
      for (int block = 0; block < blocks; ++block) {
        const ExpertShare share = share_of(static_cast<int>(items), of, block, blocks);
        ASSERT_LE(share.parts(of), kMostExpertParts);
      }
    }
  }
}

TEST(ExpertTiles, AreDividedMoreFinelyWhereBlocksHaveFew) {
  EXPECT_EQ(active_items(batch_of(16, 8, 128)), 82);
  EXPECT_EQ(expert_tiles(128, batch_of(16, 8, 128), 132).grain, 8);
  EXPECT_EQ(expert_tiles(96, batch_of(16, 8, 128), 132).grain, 4);
  EXPECT_EQ(expert_tiles(128, batch_of(1, 8, 128), 132).grain, 1);
  EXPECT_LE(expert_tiles(1000, batch_of(1, 1, 8), 132).units(), kMostItemUnits);
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
