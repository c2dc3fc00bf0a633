#include "base/spelling.h"

#include <gtest/gtest.h>

#include <vector>

namespace walsh {
namespace {

TEST(Spelling, FindsTheNearestOfTheNames) {
  const std::vector<std::string> names = {"quantize", "eval", "run", "tq4", "tq4+4"};
  EXPECT_EQ(nearest_name("quantise", names), "quantize");
  EXPECT_EQ(nearest_name("qauntize", names), "quantize");
  EXPECT_EQ(nearest_name("EVAL", names), "eval");
  EXPECT_EQ(nearest_name("tq44", names), "tq4");
  EXPECT_EQ(nearest_name("serve", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'a'), names), "");
  EXPECT_EQ(did_you_mean("rum", names), "; did you mean run?");
  EXPECT_EQ(did_you_mean("nothing-like-it", names), "");
}

TEST(Spelling, NumbersAreFollowedByTheRightForm) {
  EXPECT_EQ(counted(0, "token"), "0 tokens");
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(2, "token"), "2 tokens");
}

}  // namespace
}  // namespace walsh
