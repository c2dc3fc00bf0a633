#include "generate/draft_depth.h"

#include <gtest/gtest.h>

namespace walsh {
namespace {

DraftDepth judged(size_t drafted, size_t right, int times = 50) {
  DraftDepth depth;
  for (int i = 0; i < times; ++i)
    depth.judge(drafted, right);
  return depth;
}

TEST(DraftDepth, FollowsTheShareOfGuessesThatAreRight) {
  const DraftCosts costs{0.1, 0.05};
  int64_t before = 0;
  for (const size_t right : {1u, 2u, 4u, 8u}) {
    DraftDepth depth = judged(8, right);
    const int64_t best = depth.choose(costs, 1, 100);
    EXPECT_GT(best, before) << right;
    before = best;
  }
  EXPECT_EQ(before, DraftDepth::kMost);
  DraftDepth all = judged(8, 8);
  EXPECT_EQ(all.choose(costs, 1, 3), 3);
  EXPECT_EQ(all.choose(costs, 1, 0), 0);
}

TEST(DraftDepth, GuessesNowAndThenWhereNothingIsRight) {
  DraftDepth depth = judged(4, 0);
  int64_t drafts = 0;
  for (int i = 0; i < 160; ++i)
    drafts += depth.choose({0.1, 0.05}, 1, 8);
  EXPECT_EQ(drafts, 10);
  for (int i = 0; i < 10; ++i)
    depth.judge(1, 1);
  EXPECT_GT(depth.choose({0.1, 0.05}, 1, 8), 1);
}

TEST(DraftDepth, IsLessWhereItCostsMore) {
  const auto depth = [](const DraftCosts& costs, int64_t texts) {
    return judged(4, 3).choose(costs, texts, 8);
  };
  EXPECT_LT(depth({0.5, 0.05}, 1), depth({0.1, 0.05}, 1));
  EXPECT_LT(depth({0.1, 0.3}, 1), depth({0.1, 0.05}, 1));
  EXPECT_LT(depth({0.1, 0.05}, 32), depth({0.1, 0.05}, 1));
}

}  // namespace
}  // namespace walsh
