#include "model/row_groups.h"

#include <gtest/gtest.h>

namespace walsh {
namespace {

TEST(RowGroups, SingleTokensThatAreNeighboursAreOneGroup) {
  const walsh::Run runs[] = {{0, 9, 1}, {4, 99, 1}, {1, 0, 20}, {2, 5, 3}, {3, 7, 1}};
  const auto groups = group_rows(runs);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_TRUE(groups[0].single);
  EXPECT_EQ(groups[0].rows, 2);
  EXPECT_EQ(groups[0].longest, 100);
  EXPECT_FALSE(groups[1].single);
  EXPECT_EQ(groups[1].run, 2u);
  EXPECT_EQ(groups[1].first, 2);
  EXPECT_EQ(groups[1].end(), 22);
  EXPECT_FALSE(groups[2].single) << "prompts are groups of their own";
  EXPECT_EQ(groups[2].longest, 8);
  EXPECT_TRUE(groups[3].single);
  EXPECT_EQ(groups[3].run, 4u);
  EXPECT_EQ(groups[3].first, 25);
  EXPECT_TRUE(group_rows({}).empty());
}

}  // namespace
}  // namespace walsh
