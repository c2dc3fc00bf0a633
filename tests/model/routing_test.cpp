// Tests the choice of experts against explicit sums.
#include "model/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace walsh {
namespace {

using testing::ElementsAre;

ExpertsDesc experts_of(int64_t count, int64_t chosen) {
  ExpertsDesc experts;
  experts.count = count;
  experts.chosen = chosen;
  return experts;
}

std::vector<ChosenExpert> choose(const ExpertsDesc& experts, const std::vector<float>& logits,
                                 const std::vector<float>& bias = {}) {
  std::vector<ChosenExpert> chosen(static_cast<size_t>(experts.chosen));
  std::vector<float> scratch;
  choose_experts(experts, logits.data(), bias, chosen, scratch);
  return chosen;
}

std::vector<int> numbers(const std::vector<ChosenExpert>& chosen) {
  std::vector<int> list;
  for (const ChosenExpert& c : chosen)
    list.push_back(c.expert);
  return list;
}

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

const std::vector<float> kLogits = {0.5f, -1.0f, 2.0f, 1.0f, 0.0f, 1.5f};

TEST(Routing, NormalizedWeightsAreTheSoftmaxOfTheChosenOnes) {
  const auto chosen = choose(experts_of(6, 2), kLogits);
  EXPECT_THAT(numbers(chosen), ElementsAre(2, 5));
  EXPECT_NEAR(chosen[0].weight, sigmoid(0.5f), 1e-6);
  EXPECT_NEAR(chosen[1].weight, sigmoid(-0.5f), 1e-6);
}

TEST(Routing, WeightsOfVeryLowSigmoidsAreNumbers) {
  ExpertsDesc experts = experts_of(6, 2);
  experts.routing.sigmoid = true;
  for (const ChosenExpert& c : choose(experts, std::vector<float>(6, -200.0f)))
    EXPECT_EQ(c.weight, 0);
}

TEST(Routing, OtherWeightsAreSharesOfAllExperts) {
  ExpertsDesc experts = experts_of(6, 3);
  experts.routing.normalized = false;
  experts.routing.scale = 2;
  const auto chosen = choose(experts, kLogits);
  EXPECT_THAT(numbers(chosen), ElementsAre(2, 5, 3));
  double sum = 0;
  for (const float logit : kLogits)
    sum += std::exp(double{logit});
  EXPECT_NEAR(chosen[2].weight, 2 * std::exp(1.0) / sum, 1e-6);
}

TEST(Routing, TheBiasOfTheChoiceIsNoPartOfTheWeights) {
  ExpertsDesc experts = experts_of(6, 2);
  experts.routing.sigmoid = true;
  experts.routing.normalized = false;
  const auto chosen = choose(experts, kLogits, {0, 2, 0, 0, 0, 0});
  EXPECT_THAT(numbers(chosen), ElementsAre(1, 2));
  EXPECT_NEAR(chosen[0].weight, sigmoid(-1), 1e-6);
  EXPECT_NEAR(chosen[1].weight, sigmoid(2), 1e-6);
}

TEST(Routing, OnlyExpertsOfTheBestGroupsAreChosen) {
  ExpertsDesc experts = experts_of(6, 2);
  experts.routing.sigmoid = true;
  experts.routing.groups = 3;
  // The groups (0.5, -1), (2, 1), (0, 1.5) are scored by their best one alone, or by the sum of
  // two.
  experts.routing.group_best = 1;
  EXPECT_THAT(numbers(choose(experts, {3.0f, -9.0f, 2.0f, 1.9f, 0.0f, 1.5f})), ElementsAre(0, 1));
  experts.routing.group_best = 2;
  EXPECT_THAT(numbers(choose(experts, {3.0f, -9.0f, 2.0f, 1.9f, 0.0f, 1.5f})), ElementsAre(2, 3));
  experts.routing.groups_chosen = 2;
  EXPECT_THAT(numbers(choose(experts, {3.0f, -9.0f, 2.0f, 1.9f, 0.0f, 1.5f})), ElementsAre(2, 3));
}

TEST(Routing, EqualScoresGoToTheLowerNumber) {
  EXPECT_THAT(numbers(choose(experts_of(4, 3), {1, 1, 1, 1})), ElementsAre(0, 1, 2));
}

TEST(Routing, LogitsThatAreNotFiniteChooseExpertsThatExist) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits : {std::vector<float>{nan, nan, nan, nan},
                                           {infinity, -infinity, nan, 0},
                                           {-infinity, -infinity, -infinity, -infinity}}) {
    for (const bool grouped : {false, true}) {
      ExpertsDesc experts = experts_of(4, 2);
      experts.routing.groups = grouped ? 2 : 1;
      const std::vector<int> chosen = numbers(choose(experts, logits));
      EXPECT_THAT(chosen, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(4))));
      EXPECT_EQ(std::set<int>(chosen.begin(), chosen.end()).size(), 2u);
    }
  }
}

TEST(Routing, RowsOfAnExpertBecomeNeighboursInTheirOrder) {
  const std::vector<ChosenExpert> choices = {{3, 0}, {0, 0}, {1, 0}, {3, 0}, {0, 0}, {1, 0}};
  ExpertSlots slots;
  slots.group(choices, 2, 4);
  EXPECT_THAT(slots.first, ElementsAre(0, 2, 4, 4, 6));
  EXPECT_THAT(slots.row, ElementsAre(0, 2, 1, 2, 0, 1));
  EXPECT_THAT(slots.slot, ElementsAre(4, 0, 2, 5, 1, 3));
  EXPECT_EQ(slots.count(2), 0);
  EXPECT_EQ(slots.count(3), 2);
}

}  // namespace
}  // namespace walsh
