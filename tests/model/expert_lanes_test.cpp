// Tests how GPUs choose experts and group rows by them, run on the host with threads as lanes. The
// CPU's routing is the specification.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "host_lanes.h"
#include "kernels/cuda/experts/expert_slots.h"
#include "kernels/cuda/experts/route_row.h"
#include "model/routing.h"

namespace walsh::cuda {
namespace {

using test::LaneGroup;

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

template <int Each>
Choice choose_by_lanes(const ExpertsDesc& desc, const std::vector<float>& logits,
                       const std::vector<float>& bias, int lanes) {
  const RouteRule rule = route_rule(desc);
  Choice choice{std::vector<int32_t>(static_cast<size_t>(desc.chosen), -1),
                std::vector<float>(static_cast<size_t>(desc.chosen))};
  std::vector<float> memory(static_cast<size_t>(RouteScratch::bytes(rule)) / 4);
  const RouteScratch scratch = RouteScratch::at(memory.data(), rule);
  LaneGroup::run(lanes, [&](const auto& team) {
    route_row<Each>(
        team, rule, [&](int i) { return logits[static_cast<size_t>(i)]; },
        bias.empty() ? nullptr : bias.data(), scratch, choice.experts.data(),
        choice.weights.data());
  });
  return choice;
}

std::vector<ChosenExpert> choose_on_cpu(const ExpertsDesc& desc, const std::vector<float>& logits,
                                        const std::vector<float>& bias) {
  std::vector<ChosenExpert> chosen(static_cast<size_t>(desc.chosen));
  std::vector<float> scratch;
  choose_experts(desc, logits.data(), bias, chosen, scratch);
  return chosen;
}

void expect_same(const Choice& choice, const std::vector<ChosenExpert>& expected) {
  for (size_t k = 0; k < expected.size(); ++k) {
    ASSERT_EQ(choice.experts[k], expected[k].expert) << "choice " << k;
    if (std::isnan(expected[k].weight)) {
      EXPECT_TRUE(std::isnan(choice.weights[k]));
    } else {
      EXPECT_NEAR(choice.weights[k], expected[k].weight, 1e-6 * (1 + expected[k].weight));
    }
  }
}

// Checks with many and, if they suffice, with few experts per lane, which take another way.
void expect_choice_of_cpu(const ExpertsDesc& desc, const std::vector<float>& logits,
                          const std::vector<float>& bias, int lanes) {
  const auto expected = choose_on_cpu(desc, logits, bias);
  expect_same(choose_by_lanes<kMostLaneExperts>(desc, logits, bias, lanes), expected);
  if (desc.count <= 4 * lanes) expect_same(choose_by_lanes<4>(desc, logits, bias, lanes), expected);
}

ExpertsDesc random_experts(Random& random) {
  ExpertsDesc desc;
  RoutingDesc& routing = desc.routing;
  routing.groups = 1 + static_cast<int64_t>(random.below(4));
  const int64_t size = 2 + static_cast<int64_t>(random.below(12));
  desc.count = routing.groups * size;
  routing.groups_chosen =
      1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(routing.groups)));
  routing.group_best = 1 + static_cast<int64_t>(random.below(2));
  const int64_t most = std::min<int64_t>(routing.groups_chosen * size, 10);
  desc.chosen = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(most)));
  routing.sigmoid = random.below(2) == 0;
  routing.normalized = random.below(2) == 0;
  routing.scale = random.below(2) == 0 ? 1.0f : 2.5f;
  return desc;
}

TEST(ExpertLanes, ChooseWhatTheCpuChooses) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const ExpertsDesc desc = random_experts(random);
    std::vector<float> logits, bias;
    // Scores have few distinct values, so that many are equal.
    for (int64_t e = 0; e < desc.count; ++e)
      logits.push_back(0.5f * static_cast<float>(random.below(round % 2 == 0 ? 4 : 1000)) - 1);
    for (int64_t e = 0; e < desc.count && round % 3 == 0; ++e)
      bias.push_back(0.25f * static_cast<float>(random.below(3)));
    expect_choice_of_cpu(desc, logits, bias, 2);
    if (round % 6 == 0) expect_choice_of_cpu(desc, logits, bias, 3);  // threads wait for each other
    if (round % 6 == 3) expect_choice_of_cpu(desc, logits, bias, 6);
    if (desc.count <= 24 || round % 8 == 0) expect_choice_of_cpu(desc, logits, bias, 6);
    if (round <= 1) expect_choice_of_cpu(desc, logits, bias, 32);
  }
}

TEST(ExpertLanes, LogitsThatAreNotFiniteChooseAsOnTheCpu) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits : {std::vector<float>{nan, nan, nan, nan},
                                           {1, nan, 2, 0},
                                           {nan, 1, 2, 0},
                                           {infinity, -infinity, 3, 0},
                                           {-infinity, -infinity, -infinity, -infinity}}) {
    for (const bool sigmoid : {false, true}) {
      ExpertsDesc desc;
      desc.count = 4;
      desc.chosen = 3;
      desc.routing.sigmoid = sigmoid;
      expect_choice_of_cpu(desc, logits, {}, 3);
    }
  }
}

struct Grouped {
  std::vector<int32_t> row, slot;
  std::vector<ExpertItem> items;
};

Grouped group_by_lanes(const std::vector<int32_t>& choices, int chosen, int experts, int per_item,
                       int lanes) {
  const auto count = static_cast<int64_t>(choices.size());
  Grouped g{std::vector<int32_t>(choices.size(), -1), std::vector<int32_t>(choices.size(), -1),
            std::vector<ExpertItem>(static_cast<size_t>(item_places(count, experts, per_item)),
                                    ExpertItem{-1, -1, -1, 0})};
  for (int e = 0; e < experts; ++e) {
    LaneGroup::run(lanes, [&](const auto& team) {
      group_expert(team, choices.data(), static_cast<int>(count), chosen, e, per_item,
                   SlotArrays{g.row.data(), g.slot.data(), g.items.data()});
    });
  }
  return g;
}

std::vector<int32_t> random_choices(int64_t rows, int chosen, int experts, Random& random) {
  std::vector<int32_t> choices;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int32_t> left(static_cast<size_t>(experts));
    for (int e = 0; e < experts; ++e)
      left[static_cast<size_t>(e)] = e;
    for (int k = 0; k < chosen; ++k) {
      // Lower numbers are preferred, so that some experts have many rows and others none.
      const uint64_t at = std::min(random.below(left.size()), random.below(left.size()));
      choices.push_back(left[at]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return choices;
}

TEST(ExpertLanes, GroupRowsAsTheCpuDoes) {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const int experts = 1 + static_cast<int>(random.below(40));
    const int chosen =
        1 + static_cast<int>(random.below(static_cast<uint64_t>(std::min(experts, 6))));
    const auto choices =
        random_choices(static_cast<int64_t>(random.below(50)), chosen, experts, random);
    std::vector<ChosenExpert> of_cpu;
    for (const int32_t e : choices)
      of_cpu.push_back({e, 0});
    ExpertSlots slots;
    slots.group(of_cpu, chosen, experts);
    const Grouped g = group_by_lanes(choices, chosen, experts, 8, round % 10 == 0 ? 3 : 1);
    EXPECT_TRUE(std::equal(g.row.begin(), g.row.end(), slots.row.begin(), slots.row.end()));
    EXPECT_TRUE(std::equal(g.slot.begin(), g.slot.end(), slots.slot.begin(), slots.slot.end()));
  }
}

// Every slot is in one item, which has slots of its expert alone, and every item is written.
TEST(ExpertLanes, ItemsCoverEverySlotOnce) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const int experts = 1 + static_cast<int>(random.below(30));
    const int chosen =
        1 + static_cast<int>(random.below(static_cast<uint64_t>(std::min(experts, 8))));
    const int per_item = 1 << random.below(8);
    const auto choices =
        random_choices(static_cast<int64_t>(random.below(200)), chosen, experts, random);
    const Grouped g = group_by_lanes(choices, chosen, experts, per_item, 1);
    std::vector<int> expert_of_slot(choices.size(), -1), covered(choices.size());
    for (size_t i = 0; i < choices.size(); ++i)
      expert_of_slot[static_cast<size_t>(g.slot[i])] = choices[i];
    for (const ExpertItem& item : g.items) {
      ASSERT_GE(item.count, 0) << "an item that nobody wrote";
      ASSERT_LE(item.count, per_item);
      for (int s = item.first; s < item.first + item.count; ++s) {
        ++covered[static_cast<size_t>(s)];
        ASSERT_EQ(expert_of_slot[static_cast<size_t>(s)], item.expert);
      }
    }
    EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
  }
}

TEST(ExpertLanes, FewRowsKeepTheirOrder) {
  const std::vector<int32_t> choices = {7, 2, 2, 0};
  Grouped g{std::vector<int32_t>(4), std::vector<int32_t>(4), std::vector<ExpertItem>(4)};
  for (int i = 0; i < 4; ++i)
    keep_order(i, 2, choices[static_cast<size_t>(i)],
               SlotArrays{g.row.data(), g.slot.data(), g.items.data()});
  EXPECT_EQ(g.row, (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(g.slot, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(g.items[2], (ExpertItem{2, 2, 1, 0}));
}

TEST(ExpertPlans, HaveRoomForTheirItems) {
  for (const int64_t experts : {4, 60, 128, 512}) {
    for (const int64_t chosen : {1, 2, 4}) {
      for (const bool tiles : {false, true}) {
        const int64_t most = most_items(4096, chosen, experts);
        for (int64_t rows = 1; rows <= 4096; rows += rows < 40 ? 1 : 37) {
          const ExpertPlan plan = plan_experts(rows, chosen, experts, tiles);
          ASSERT_LE(plan.places(rows * chosen, experts), most) << rows;
          ASSERT_TRUE(tiles || plan.kind != ExpertPlan::Kind::tiles);
        }
      }
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
