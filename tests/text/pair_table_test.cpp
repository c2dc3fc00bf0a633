#include "text/pair_table.h"

#include <gtest/gtest.h>

#include <utility>

namespace walsh {
namespace {

TEST(PairTable, FindsWhatWasPutIn) {
  PairTable table(100);
  for (int32_t i = 0; i < 100; ++i)
    table.insert(i, 2 * i, {static_cast<uint32_t>(i), i + 1});
  for (int32_t i = 0; i < 100; ++i) {
    const Merge* merge = table.find(i, 2 * i);
    ASSERT_NE(merge, nullptr);
    EXPECT_EQ(merge->rank, static_cast<uint32_t>(i));
    EXPECT_EQ(merge->result, i + 1);
    EXPECT_EQ(table.find(i, 2 * i + 1), nullptr);
  }
  table.insert(3, 6, {1000, 4});
  EXPECT_EQ(table.find(3, 6)->rank, 1000u);
  EXPECT_EQ(PairTable().find(0, 0), nullptr);
}

// A file may hold pairs that fall into one place of the table under a hash that its writer knows;
// each search would then pass all of them.
TEST(PairTable, PairsChosenForOneSecretAreFoundQuicklyUnderAnother) {
  constexpr uint64_t kKnown = 0;
  constexpr size_t kPairs = 2000;
  std::vector<std::pair<int32_t, int32_t>> chosen;
  for (int32_t left = 0; chosen.size() < kPairs; ++left) {
    for (int32_t right = 0; right < 1000 && chosen.size() < kPairs; ++right) {
      const auto key = static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
      if ((keyed_hash(key, kKnown) & 0xfff) < 16) chosen.emplace_back(left, right);
    }
  }
  PairTable known(kPairs, kKnown), table(kPairs);
  for (const auto& [left, right] : chosen) {
    known.insert(left, right, {0, 1});
    table.insert(left, right, {0, 1});
  }
  EXPECT_GT(known.longest_search(), kPairs / 2);
  EXPECT_LT(table.longest_search(), kPairs / 10);
}

}  // namespace
}  // namespace walsh
