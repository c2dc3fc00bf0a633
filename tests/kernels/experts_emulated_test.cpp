// Tests the kernels that choose experts, assign slots and add up results, run on the host
// (emulated/device.h). tests/model compares the rules themselves with model/routing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "walsh/error.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/experts/experts.h"

namespace walsh::cuda {
namespace {

struct Routed {
  std::vector<int32_t> choices, row, slot;
  std::vector<float> weights;
  std::vector<ExpertItem> items;
};

Routed route_rows(const RouteRule& rule, const std::vector<float>& logits, int64_t m,
                  const ExpertPlan& plan) {
  const auto slots = static_cast<size_t>(m * rule.chosen);
  Routed r{std::vector<int32_t>(slots, -1), std::vector<int32_t>(slots, -1),
           std::vector<int32_t>(slots, -1), std::vector<float>(slots),
           std::vector<ExpertItem>(
               static_cast<size_t>(plan.places(static_cast<int64_t>(slots), rule.experts)),
               ExpertItem{-1, -1, -1, 0})};
  RouteCall call;
  call.rule = rule;
  call.logits = logits.data();
  call.m = m;
  call.choices = r.choices.data();
  call.weights = r.weights.data();
  route(call, plan, {r.row.data(), r.slot.data(), r.items.data()}, nullptr);
  return r;
}

RouteRule rule_of(int experts, int chosen) {
  RouteRule rule;
  rule.experts = experts;
  rule.chosen = chosen;
  return rule;
}

TEST(ExpertKernels, ChooseTheLargestAndCoverEverySlotOnce) {
  Random random(1);
  for (const int64_t m : {1, 2, 4, 5, 16, 17, 100}) {
    SCOPED_TRACE(m);
    constexpr int kExperts = 37, kChosen = 3;
    std::vector<float> logits;
    for (int64_t i = 0; i < m * kExperts; ++i)
      logits.push_back(0.25f * static_cast<float>(random.below(12)));  // many are equal
    const ExpertPlan plan = plan_experts(m, kChosen, kExperts, false);
    const Routed r = route_rows(rule_of(kExperts, kChosen), logits, m, plan);
    for (int64_t t = 0; t < m; ++t) {
      const float* row = logits.data() + t * kExperts;
      std::vector<int> order(kExperts);
      for (int e = 0; e < kExperts; ++e)
        order[static_cast<size_t>(e)] = e;
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
      double sum = 0;
      for (int k = 0; k < kChosen; ++k)
        sum += std::exp(double{row[order[static_cast<size_t>(k)]]});
      for (int k = 0; k < kChosen; ++k) {
        const auto at = static_cast<size_t>(t * kChosen + k);
        const int expert = order[static_cast<size_t>(k)];
        ASSERT_EQ(r.choices[at], expert) << "row " << t << " choice " << k;
        ASSERT_NEAR(r.weights[at], std::exp(double{row[expert]}) / sum, 1e-6);
        ASSERT_EQ(r.row[static_cast<size_t>(r.slot[at])], t);
      }
    }
    std::vector<int> covered(r.choices.size());
    for (const ExpertItem& item : r.items) {
      ASSERT_GE(item.count, 0) << "an item that nobody wrote";
      for (int s = item.first; s < item.first + item.count; ++s) {
        ++covered[static_cast<size_t>(s)];
        const auto found = std::find(r.slot.begin(), r.slot.end(), s) - r.slot.begin();
        ASSERT_EQ(r.choices[static_cast<size_t>(found)], item.expert);
      }
    }
    EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
  }
}

// A lane has up to as many experts as it can have.
TEST(ExpertKernels, ChooseTheLargestOfMany) {
  Random random(3);
  constexpr int kChosen = 10;
  for (const int experts : {128, 129, 300, 513, kMostRoutedExperts}) {
    SCOPED_TRACE(experts);
    std::vector<float> logits;
    for (int i = 0; i < experts; ++i)
      logits.push_back(0.125f * static_cast<float>(random.below(80)));
    const ExpertPlan plan = plan_experts(1, kChosen, experts, false);
    const Routed r = route_rows(rule_of(experts, kChosen), logits, 1, plan);
    std::vector<int32_t> order(static_cast<size_t>(experts));
    for (int e = 0; e < experts; ++e)
      order[static_cast<size_t>(e)] = e;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    order.resize(kChosen);
    EXPECT_EQ(r.choices, order);
  }
  const std::vector<float> logits(kMostRoutedExperts + 1);
  const ExpertPlan plan = plan_experts(1, kChosen, kMostRoutedExperts + 1, false);
  EXPECT_THROW(route_rows(rule_of(kMostRoutedExperts + 1, kChosen), logits, 1, plan), Error);
}

// There are more choices than a block has threads, so that slots go on from one round to the next.
TEST(ExpertKernels, SlotsOfAnExpertAreInTheOrderOfTheRows) {
  constexpr int64_t kRows = 700;
  Random random(2);
  std::vector<float> logits(kRows * 2);
  for (float& v : logits)
    v = static_cast<float>(random.normal());
  const ExpertPlan plan{ExpertPlan::Kind::tiles, 64};
  const Routed r = route_rows(rule_of(2, 1), logits, kRows, plan);
  std::vector<int32_t> expected;
  for (int expert = 0; expert < 2; ++expert)
    for (int32_t t = 0; t < kRows; ++t)
      if (r.choices[static_cast<size_t>(t)] == expert) expected.push_back(t);
  EXPECT_EQ(r.row, expected);
}

// Up to 32 rows have one block for the choice and the tables.
TEST(ExpertKernels, OneBlockMakesTheTablesOfABlockForEachExpert) {
  Random random(5);
  for (const int64_t m : {5, 16, 31, 32}) {
    for (const int experts : {7, 200}) {
      SCOPED_TRACE(testing::Message() << m << " rows, " << experts << " experts");
      constexpr int kChosen = 3;
      std::vector<float> logits;
      for (int64_t i = 0; i < m * experts; ++i)
        logits.push_back(static_cast<float>(random.normal()));
      const ExpertPlan plan = plan_experts(m, kChosen, experts, false);
      const Routed r = route_rows(rule_of(experts, kChosen), logits, m, plan);
      Routed expected = r;
      std::fill(expected.row.begin(), expected.row.end(), -1);
      std::fill(expected.slot.begin(), expected.slot.end(), -1);
      GivenChoices call;
      call.ids = r.choices.data();
      call.m = m;
      call.chosen = kChosen;
      call.experts = experts;
      call.choices = expected.choices.data();
      group_given(call, plan, {expected.row.data(), expected.slot.data(), expected.items.data()},
                  nullptr);
      EXPECT_EQ(r.row, expected.row);
      EXPECT_EQ(r.slot, expected.slot);
      EXPECT_EQ(r.items, expected.items);
    }
  }
}

TEST(ExpertKernels, AddUpInTheOrderOfTheChoices) {
  constexpr int64_t kRows = 2, kWidth = 300;
  const std::vector<int32_t> slot{3, 0, 1, 2};
  const std::vector<float> weights{0.5f, 2, 0.25f, 4}, share{0, 100};
  std::vector<float> results(4 * kWidth), out(kRows * kWidth, 10);
  for (size_t i = 0; i < results.size(); ++i)
    results[i] = static_cast<float>(i / kWidth + 1);
  ExpertSum call;
  call.results = results.data();
  call.slot = slot.data();
  call.weights = weights.data();
  call.share = share.data();
  call.shared = true;
  call.out = out.data();
  call.m = kRows;
  call.width = kWidth;
  call.chosen = 2;
  sum_experts(call, nullptr);
  EXPECT_EQ(out.front(), 5 + 0.5f * 4 + 2 * 1);
  EXPECT_EQ(out[kWidth - 1], out.front());
  EXPECT_EQ(out.back(), 10 + 0.25f * 2 + 4 * 3);
  call.shared = false;
  sum_experts(call, nullptr);
  EXPECT_EQ(out.front(), 0.5f * 4 + 2 * 1);
}

TEST(ExpertKernels, ClampGates) {
  std::vector<float> gate{-9, 0.5f, 3, 9}, up{-9, -1, 2, 9};
  clamp_gates(gate.data(), up.data(), 4, {true, 2, 7}, nullptr);
  EXPECT_EQ(gate, (std::vector<float>{-18, 1, 6, 14}));
  EXPECT_EQ(up, (std::vector<float>{-3, 0, 1.5f, 4}));
}

}  // namespace
}  // namespace walsh::cuda
