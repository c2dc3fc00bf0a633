#include "eval/windows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "walsh/error.h"

namespace walsh {
namespace {

WindowOptions rule(WindowRule kind, int64_t ctx, int64_t stride = 0, int64_t chunks = 0) {
  return {kind, ctx, stride, chunks};
}

TEST(PlanWindows, DropsTheIncompleteLastWindow) {
  EXPECT_EQ(WindowPlan(1023, rule(WindowRule::second_half, 512)).size(), 1);
  EXPECT_EQ(WindowPlan(1024, rule(WindowRule::second_half, 512)).size(), 2);
  // The anchor text: 337406 tokens are 658 windows of 512.
  EXPECT_EQ(WindowPlan(337406, rule(WindowRule::second_half, 512)).size(), 658);
}

TEST(PlanWindows, ScoresTheSecondHalfOrAllButTheFirstToken) {
  const Window half = WindowPlan(2000, rule(WindowRule::second_half, 512))[1];
  EXPECT_EQ(half.begin, 512);
  EXPECT_EQ(half.end, 1024);
  EXPECT_EQ(half.first_scored, 256);
  EXPECT_EQ(half.scored(), 256);
  EXPECT_EQ(WindowPlan(2000, rule(WindowRule::full, 512))[1].scored(), 511);
  EXPECT_EQ(WindowPlan(9, rule(WindowRule::second_half, 2))[0].first_scored, 1);
  EXPECT_EQ(WindowPlan(9, rule(WindowRule::second_half, 3))[0].scored(), 2);
}

TEST(PlanWindows, ChunksLimitTheNumberOfWindows) {
  EXPECT_EQ(WindowPlan(5120, rule(WindowRule::second_half, 512, 0, 3)).size(), 3);
  EXPECT_EQ(WindowPlan(1024, rule(WindowRule::second_half, 512, 0, 3)).size(), 2);
}

TEST(PlanWindows, StridedWindowsScoreEveryTokenOnce) {
  for (const int64_t tokens : {2, 9, 10, 11, 57, 100}) {
    for (const int64_t stride : {1, 3, 9}) {
      std::vector<int> hits(static_cast<size_t>(tokens), 0);
      const WindowPlan plan(tokens, rule(WindowRule::strided, 10, stride));
      for (int64_t n = 0; n < plan.size(); ++n) {
        const Window w = plan[n];
        EXPECT_LE(w.end - w.begin, 10);
        EXPECT_GE(w.first_scored, 1);
        for (int64_t i = w.begin + w.first_scored; i < w.end; ++i)
          ++hits[static_cast<size_t>(i)];
      }
      EXPECT_EQ(hits[0], 0);
      for (size_t i = 1; i < hits.size(); ++i)
        EXPECT_EQ(hits[i], 1) << tokens << " " << stride << " " << i;
    }
  }
}

TEST(PlanWindows, StrideEqualToTheContextSkipsFirstTokens) {
  const WindowPlan w(20, rule(WindowRule::strided, 10, 10));
  ASSERT_EQ(w.size(), 2);
  EXPECT_EQ(w[0].scored(), 9);
  EXPECT_EQ(w[1].scored(), 9);
  EXPECT_EQ(WindowPlan(21, rule(WindowRule::strided, 10, 10)).size(), 2);  // one token is left
  EXPECT_EQ(WindowPlan(22, rule(WindowRule::strided, 10, 10))[2].scored(), 1);
}

TEST(PlanWindows, RefusesWhatCannotBeScored) {
  EXPECT_THROW(WindowPlan(511, rule(WindowRule::second_half, 512)), Error);
  EXPECT_THROW(WindowPlan(100, rule(WindowRule::full, 1)), Error);
  EXPECT_THROW(WindowPlan(100, rule(WindowRule::strided, 10, 0)), Error);
  EXPECT_THROW(WindowPlan(100, rule(WindowRule::strided, 10, 11)), Error);
  EXPECT_THROW(WindowPlan(1, rule(WindowRule::strided, 10, 5)), Error);
}

TEST(WindowTokens, PutsBosInPlaceOfTheFirstToken) {
  std::vector<int32_t> text(10);
  std::iota(text.begin(), text.end(), 100);
  EXPECT_EQ(window_tokens(text, {4, 7, 1}, 1), (std::vector<int32_t>{1, 105, 106}));
  EXPECT_EQ(window_tokens(text, {4, 7, 1}, -1), (std::vector<int32_t>{104, 105, 106}));
}

}  // namespace
}  // namespace walsh
