#include "kernels/cuda/persistent/block_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/random.h"

namespace walsh::cuda {
namespace {

std::vector<int> weights_of(const std::vector<TileRun>& runs) {
  std::vector<int> weights;
  for (const TileRun& run : runs)
    weights.insert(weights.end(), static_cast<size_t>(run.tiles), run.weight);
  return weights;
}

// Returns the largest range; checks that each has a tile.
int64_t heaviest(const std::vector<int>& weights, const std::vector<int>& first) {
  int64_t most = 0;
  EXPECT_EQ(first.front(), 0);
  EXPECT_EQ(first.back(), static_cast<int>(weights.size()));
  for (size_t i = 1; i < first.size(); ++i) {
    EXPECT_LT(first[i - 1], first[i]);
    int64_t sum = 0;
    for (int t = first[i - 1]; t < first[i]; ++t)
      sum += weights[static_cast<size_t>(t)];
    most = std::max(most, sum);
  }
  return most;
}

// Finds the least by trying everything.
int64_t lightest(const std::vector<int>& weights, size_t begin, int blocks) {
  if (blocks == 0) return begin == weights.size() ? 0 : std::numeric_limits<int64_t>::max();
  int64_t best = std::numeric_limits<int64_t>::max(), sum = 0;
  for (size_t end = begin + 1; end <= weights.size(); ++end) {
    sum += weights[end - 1];
    best = std::min(best, std::max(sum, lightest(weights, end, blocks - 1)));
  }
  return best;
}

TEST(TileShare, TilesOfEqualWeightGoRound) {
  const TileRun runs[] = {{7, 3}, {0, 5}, {4, 3}};
  EXPECT_EQ(share_tiles(runs, 4), (std::vector<int>{0, 3, 6, 9, 11}));
  const TileRun one[] = {{4, 1}};
  EXPECT_EQ(share_tiles(one, 4), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(TileShare, TheHeaviestShareIsAsLightAsCanBe) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<TileRun> runs(1 + random.below(3));
    for (TileRun& run : runs)
      run = {1 + static_cast<int>(random.below(4)), 1 + static_cast<int>(random.below(6))};
    const std::vector<int> weights = weights_of(runs);
    const int blocks = 1 + static_cast<int>(random.below(weights.size()));
    EXPECT_EQ(heaviest(weights, share_tiles(runs, blocks)), lightest(weights, 0, blocks));
  }
}

// The runs are q with 2 bits, k and v with 4, of an 8b model.
TEST(TileShare, WideTilesHaveMoreBlocks) {
  const std::vector<TileRun> runs = {{256, 28}, {64, 48}, {64, 48}};
  const std::vector<int> first = share_tiles(runs, 132);
  EXPECT_LE(heaviest(weights_of(runs), first), 112);  // the mean is 101
}

}  // namespace
}  // namespace walsh::cuda
