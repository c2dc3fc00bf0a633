#include "allocate/knapsack.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Items = std::vector<std::vector<Choice>>;

struct BruteForce {
  double damage = std::numeric_limits<double>::infinity();
  uint64_t bytes = 0;
};

// Tries every combination.
void search(const Items& items, size_t i, uint64_t bytes, double damage, uint64_t budget,
            BruteForce& best) {
  if (bytes > budget) return;
  if (i == items.size()) {
    if (damage < best.damage) best = {damage, bytes};
    return;
  }
  for (const Choice& choice : items[i])
    search(items, i + 1, bytes + choice.bytes, damage + choice.damage, budget, best);
}

Items random_items(Random& random, uint64_t unit, bool falling) {
  Items items(1 + random.below(7));
  for (auto& item : items) {
    uint64_t bytes = unit * (1 + random.below(20));
    double damage = 10 * random.uniform();
    for (uint64_t c = 1 + random.below(4); c > 0; --c) {
      item.push_back({bytes, damage});
      bytes += unit * random.below(15);
      damage = falling ? damage * random.uniform() : 10 * random.uniform();
    }
  }
  return items;
}

uint64_t least(const Items& items) {
  uint64_t sum = 0;
  for (const auto& item : items) {
    uint64_t bytes = item[0].bytes;
    for (const Choice& choice : item)
      bytes = std::min(bytes, choice.bytes);
    sum += bytes;
  }
  return sum;
}

TEST(Knapsack, IsAsGoodAsEveryCombination) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const uint64_t unit = round % 2 == 0 ? 1 : 4096 + 64 * random.below(100);
    const Items items = random_items(random, unit, round % 3 != 0);
    const uint64_t budget = least(items) + unit * random.below(60);
    BruteForce best;
    search(items, 0, 0, 0, budget, best);
    const KnapsackSolution solution = solve_knapsack(items, budget, "test");
    ASSERT_NEAR(solution.damage, best.damage, 1e-9) << "round " << round;
    EXPECT_LE(solution.bytes, budget);
    ASSERT_EQ(solution.picks.size(), items.size());
    uint64_t bytes = 0;
    double damage = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const Choice& choice = items[i][static_cast<size_t>(solution.picks[i])];
      bytes += choice.bytes;
      damage += choice.damage;
    }
    EXPECT_EQ(solution.bytes, bytes);
    EXPECT_DOUBLE_EQ(solution.damage, damage);
  }
}

TEST(Knapsack, CountsInTheLargestUnitThatNeedsNoRounding) {
  const Items items = {{{1000, 3}, {1600, 2}, {2500, 1}}, {{77, 1}, {377, 0.5}}};
  EXPECT_EQ(solve_knapsack(items, 100'000, "test").unit, 300u);
}

TEST(Knapsack, RoundsSizesUpWhereUnitsWouldBeTooMany) {
  const uint64_t huge = uint64_t{1} << 40;
  const Items items = {{{0, 5}, {huge, 1}}, {{1, 4}, {huge + 8, 2}}, {{7, 1}, {12, 0.9}}};
  for (const uint64_t budget : {huge + 7, huge + 8, 2 * huge + 8, 3 * huge}) {
    const KnapsackSolution solution = solve_knapsack(items, budget, "test");
    EXPECT_LE(solution.bytes, budget);
    EXPECT_GT(solution.unit, 1u);
    EXPECT_LE(solution.damage, 5 + 4 + 1);
  }
  EXPECT_DOUBLE_EQ(solve_knapsack(items, 3 * huge, "test").damage, 1 + 2 + 0.9);
}

TEST(Knapsack, TakesTheSmallerOfEquallyGoodOnes) {
  const Items items = {{{50, 1}, {10, 1}, {30, 1}}};
  EXPECT_EQ(solve_knapsack(items, 100, "test").picks, std::vector<int>{1});
}

TEST(Knapsack, HoldsTheBudgetToTheByte) {
  const Items items = {{{10, 2}, {20, 1}}, {{10, 2}, {20, 1.5}}};
  EXPECT_EQ(solve_knapsack(items, 30, "test").picks, (std::vector<int>{1, 0}));
  EXPECT_EQ(solve_knapsack(items, 29, "test").picks, (std::vector<int>{0, 0}));
  EXPECT_EQ(solve_knapsack(items, 40, "test").picks, (std::vector<int>{1, 1}));
}

TEST(Knapsack, RefusesDamageThatIsNotFinite) {
  for (const double damage :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Items items = {{{20, damage}, {10, damage}}, {{10, 1}, {20, 0}}};
    EXPECT_THROW(solve_knapsack(items, 30, "test"), Error);
  }
}

TEST(Knapsack, TellsWhatIsNeededWhenNothingFits) {
  const Items items = {{{10, 2}, {20, 1}}, {{10, 2}}};
  try {
    solve_knapsack(items, 19, "--bpw");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_EQ(e.where(), "--bpw");
    EXPECT_NE(e.reason().find("20"), std::string::npos) << e.reason();
  }
}

}  // namespace
}  // namespace walsh
