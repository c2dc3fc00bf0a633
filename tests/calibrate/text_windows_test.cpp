#include "calibrate/text_windows.h"

#include <gtest/gtest.h>

namespace walsh {
namespace {

using Windows = std::vector<std::vector<int32_t>>;
using Runs = std::vector<Run>;  // (a test has a Run of its own)

// Runs and tokens of every batch.
std::vector<std::pair<Runs, std::vector<int32_t>>> batches(const Windows& windows,
                                                           int64_t sequences, int64_t most_rows) {
  std::vector<std::pair<Runs, std::vector<int32_t>>> result;
  for_batches(windows, sequences, most_rows, [&](const Batch& batch) {
    result.push_back(
        {{batch.runs.begin(), batch.runs.end()}, {batch.tokens.begin(), batch.tokens.end()}});
  });
  return result;
}

TEST(WindowBatches, TakeAsManyWholeWindowsAsThereAreSequences) {
  const auto found = batches({{1, 2}, {3, 4}, {5, 6}}, 2, 100);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first, (Runs{{0, 0, 2, 2}, {1, 0, 2, 2}}));
  EXPECT_EQ(found[0].second, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(found[1].first, (Runs{{0, 0, 2, 2}}));
}

TEST(WindowBatches, TakeNoMoreWindowsThanThereAreRowsFor) {
  const auto found = batches({{1, 2}, {3, 4}, {5, 6}}, 8, 5);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].second, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(found[1].second, (std::vector<int32_t>{5, 6}));
}

TEST(WindowBatches, CutALongWindowIntoPieces) {
  const auto found = batches({{9}, {1, 2, 3, 4, 5}, {7}}, 8, 2);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].second, (std::vector<int32_t>{9}));
  EXPECT_EQ(found[1].first, (Runs{{0, 0, 2, 2}}));
  EXPECT_EQ(found[2].first, (Runs{{0, 2, 2, 2}}));
  EXPECT_EQ(found[3].first, (Runs{{0, 4, 1, 1}}));
  EXPECT_EQ(found[4].first, (Runs{{0, 0, 1, 1}}));
}

}  // namespace
}  // namespace walsh
