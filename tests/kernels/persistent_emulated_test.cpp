// Tests the persistent kernel, run unchanged on the host (emulated/device.h): blocks are threads
// that wait for each other's values, and pairs write to each other's shared memory. Programs with
// experts are compared with their definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/emulated/program_data.h"
//
#include "kernels/cuda/launch.h"
#include "kernels/cuda/persistent/expert_phase.h"
#include "kernels/cuda/persistent/program.h"

namespace walsh::cuda {
namespace {

struct Shape {
  int64_t hidden, mixed;
  RouteRule rule;
  int64_t width, shared_width;
  bool share, bias;
  int bits = 3, other_bits = 3;  // of experts, and of the products before them
  bool equal = false;            // All experts have the same row of the router.
};

// Holds gate, up and down of one expert.
struct Expert {
  Coded gate, up, down;

  Expert(Random& random, int64_t hidden, int64_t width, int bits)
      : gate(random, width, hidden, bits),
        up(random, width, hidden, bits),
        down(random, hidden, width, bits) {}

  std::vector<double> of(const std::vector<float>& input, const Form& gated) const {
    const auto g = gate.times(input), u = up.times(input);
    std::vector<float> h;
    for (size_t i = 0; i < g.size(); ++i)
      h.push_back(static_cast<float>(g[i] / (1 + std::exp(-g[i])) * u[i]));
    return down.times(gated.of(h));
  }
};

// Computes a layer: mixed = W norm(x), x += V mixed, x += experts(norm(x)).
struct Layer {
  Form into_mixed, into_x, into_experts, gated, shared_gated;
  Coded mixes, adds;
  std::vector<float> mixed_gain, gain, router, share, bias;
  std::vector<Expert> experts;
  std::vector<Expert> shared;  // one or none
  Buffer device_mixed_gain, device_gain, device_bias;
  DenseMatrix device_router, device_share;

  Layer(Random& random, const Shape& s, uint32_t seed)
      : into_mixed(s.hidden, seed),
        into_x(s.mixed, seed + 1),
        into_experts(s.hidden, seed + 2),
        gated(s.width, seed + 3),
        shared_gated(std::max<int64_t>(1, s.shared_width), seed + 4),
        mixes(random, s.mixed, s.hidden, s.other_bits),
        adds(random, s.hidden, s.mixed, s.other_bits),
        mixed_gain(random_values(random, s.hidden)),
        gain(random_values(random, s.hidden)),
        router(random_values(random, s.rule.experts * s.hidden, 1.5 / std::sqrt(s.hidden))),
        share(random_values(random, s.hidden, 1 / std::sqrt(s.hidden))),
        bias(random_values(random, s.rule.experts, 0.2)) {
    for (int e = 0; e < s.rule.experts; ++e)
      experts.emplace_back(random, s.hidden, s.width, s.bits);
    if (s.shared_width > 0) shared.emplace_back(random, s.hidden, s.shared_width, s.bits);
    for (size_t i = static_cast<size_t>(s.hidden); s.equal && i < router.size(); ++i)
      router[i] = router[i - static_cast<size_t>(s.hidden)];
    device_mixed_gain = to_device(mixed_gain);
    device_gain = to_device(gain);
    device_bias = to_device(bias);
    device_router = {DType::f32, s.rule.experts, s.hidden, to_device(router)};
    device_share = {DType::f32, 1, s.hidden, to_device(share)};
  }

  int64_t stride() const {
    return experts.size() < 2 ? 0
                              : experts[1].gate.device.codes.as<std::byte>() -
                                    experts[0].gate.device.codes.as<std::byte>();
  }
};

ExpertStep::Part part_of(const Expert& expert, Layer& layer, Form& gated) {
  ExpertStep::Part part;
  part.width = expert.gate.device.rows;
  part.gate = product_of(expert.gate, layer.into_experts);
  part.up = product_of(expert.up, layer.into_experts);
  part.down_form = gated.described();
  part.down = product_of(expert.down, gated);
  return part;
}

using Change = std::function<void(ExpertStep&)>;

bool add_layer(PersistentProgram& program, Layer& layer, const Shape& s, float* x, float* mixed,
               const Change& change = {}) {
  InputSource first{x, nullptr, layer.device_mixed_gain.as<float>(), kEps, s.hidden, s.hidden};
  InputSource second{mixed, nullptr, nullptr, 0, s.mixed, s.mixed};
  const InputForm forms[] = {layer.into_mixed.described(), layer.into_x.described(),
                             layer.into_experts.described()};
  Matmul mixes = product_of(layer.mixes, layer.into_mixed);
  Matmul adds = product_of(layer.adds, layer.into_x);
  mixes.y = mixed;
  adds.y = x;
  adds.add = true;
  ExpertStep step;
  step.source = first;
  step.source.gain = layer.device_gain.as<float>();
  step.forms = {forms + 2, 1};
  step.router = &layer.device_router;
  step.share = s.share ? &layer.device_share : nullptr;
  step.rule = s.rule;
  step.bias = s.bias ? layer.device_bias.as<float>() : nullptr;
  step.stride = layer.stride();
  step.expert = part_of(layer.experts[0], layer, layer.gated);
  if (!layer.shared.empty()) step.shared = part_of(layer.shared[0], layer, layer.shared_gated);
  step.stream = x;
  if (change) change(step);
  return program.multiply(first, {forms, 1}, {&mixes, 1}) &&
         program.multiply(second, {forms + 1, 1}, {&adds, 1}) && program.experts(step);
}

// Returns the chosen experts and their weights by the rules' definition: scores in double.
std::vector<std::pair<int, double>> chosen_of(const RouteRule& rule,
                                              const std::vector<double>& logits,
                                              const std::vector<float>& bias) {
  const auto count = static_cast<size_t>(rule.experts);
  std::vector<double> scores(count), ranks(count);
  double sum = 0;
  for (size_t e = 0; e < count; ++e)
    sum += scores[e] = rule.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]);
  for (size_t e = 0; e < count; ++e) {
    if (!rule.sigmoid) scores[e] /= sum;
    ranks[e] = scores[e] + (bias.empty() ? 0.0 : double{bias[e]});
  }
  const size_t size = count / static_cast<size_t>(rule.groups);
  std::vector<std::pair<double, size_t>> groups;
  for (size_t g = 0; g < static_cast<size_t>(rule.groups); ++g) {
    std::vector<double> own(ranks.begin() + static_cast<long>(g * size),
                            ranks.begin() + static_cast<long>((g + 1) * size));
    std::sort(own.rbegin(), own.rend());
    groups.emplace_back(std::accumulate(own.begin(), own.begin() + rule.group_best, 0.0), g);
  }
  std::sort(groups.rbegin(), groups.rend());
  std::vector<std::pair<double, int>> order;
  for (size_t g = 0; g < static_cast<size_t>(rule.groups_chosen); ++g)
    for (size_t e = groups[g].second * size; e < (groups[g].second + 1) * size; ++e)
      order.emplace_back(-ranks[e], static_cast<int>(e));
  std::sort(order.begin(), order.end());
  std::vector<std::pair<int, double>> chosen;
  double total = 0;
  for (size_t k = 0; k < static_cast<size_t>(rule.chosen); ++k) {
    chosen.emplace_back(order[k].second, scores[static_cast<size_t>(order[k].second)]);
    total += chosen.back().second;
  }
  for (auto& [expert, weight] : chosen)
    weight = (rule.normalized ? weight / total : weight) * double{rule.scale};
  return chosen;
}

void run_layer(const Layer& layer, const Shape& s, std::vector<float>& x) {
  const auto mixed = layer.mixes.times(layer.into_mixed.of(normed(x, layer.mixed_gain)));
  add(x, layer.adds.times(layer.into_x.of({mixed.begin(), mixed.end()})), 1);
  const std::vector<float> input = normed(x, layer.gain);
  std::vector<double> logits(static_cast<size_t>(s.rule.experts) + 1);
  for (size_t e = 0; e < logits.size(); ++e) {
    const float* row =
        e + 1 < logits.size() ? layer.router.data() + e * input.size() : layer.share.data();
    logits[e] = std::inner_product(input.begin(), input.end(), row, 0.0);
  }
  const std::vector<float> quantized = layer.into_experts.of(input);
  std::vector<std::vector<double>> results;
  const auto chosen = chosen_of(s.rule, logits, s.bias ? layer.bias : std::vector<float>());
  for (const auto& [expert, weight] : chosen)
    results.push_back(layer.experts[static_cast<size_t>(expert)].of(quantized, layer.gated));
  if (!layer.shared.empty())
    add(x, layer.shared[0].of(quantized, layer.shared_gated),
        s.share ? 1 / (1 + std::exp(-logits.back())) : 1);
  for (size_t k = 0; k < chosen.size(); ++k)
    add(x, results[k], chosen[k].second);
}

// Runs several layers, several launches, with and without pairs of blocks, which make the same
// inputs.
void expect_layers(const Shape& s, int layers, int processors) {
  emulated::multiprocessors = processors;
  Random random(8);
  std::vector<Layer> all;
  for (int i = 0; i < layers; ++i)
    all.emplace_back(random, s, static_cast<uint32_t>(100 * i));
  const std::vector<float> start = random_values(random, s.hidden);
  std::vector<float> expected = start;
  for (const Layer& layer : all)
    run_layer(layer, s, expected);
  const Buffer x = to_device(start), mixed(static_cast<uint64_t>(s.mixed) * sizeof(float));
  std::vector<float> first;
  for (const bool pairs : {true, false}) {
    SCOPED_TRACE(pairs ? "pairs" : "single blocks");
    emulated::has_clusters = pairs;
    PersistentProgram program;
    for (Layer& layer : all)
      ASSERT_TRUE(add_layer(program, layer, s, x.as<float>(), mixed.as<float>()));
    ASSERT_TRUE(program.finish());
    for (int launch = 0; launch < (pairs ? 2 : 1); ++launch) {  // of other tags
      copy_to_device(x.as(), start.data(), x.bytes(), nullptr);
      program.launch(nullptr);
      const std::vector<float> got(x.as<float>(), x.as<float>() + s.hidden);
      ASSERT_LT(relative_error(got, expected), kRounding) << "launch " << launch;
      if (first.empty()) first = got;
      ASSERT_EQ(got, first) << "launch " << launch;
    }
  }
}

// Returns every k-tile of a phase one by one, in the order that ExpertPhase says.
std::vector<ExpertRun> k_tiles_of(const ExpertPhase& e, int sets_or_tiles) {
  std::vector<ExpertRun> all;
  for (int which = 0; which < sets_or_tiles; ++which) {
    for (int slot = 0; slot <= e.chosen; ++slot) {
      const int per = slot < e.chosen ? e.per_slot : e.per_shared;
      for (int i = 0; i < per; ++i)
        all.push_back({e.by_row ? 0 : which, slot, e.by_row ? which * per + i : i, 1});
    }
  }
  return all;
}

TEST(ExpertPhases, RunsAreTheirKTilesInOrder) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    ExpertPhase e;
    e.by_row = round % 2 == 0;
    e.chosen = 1 + static_cast<int>(random.below(5));
    e.per_slot = 1 + static_cast<int>(random.below(6));
    e.per_shared = static_cast<int>(random.below(3)) * static_cast<int>(random.below(9));
    const auto all = k_tiles_of(e, e.by_row ? 7 : 2);
    const auto count = static_cast<int>(all.size());
    const int begin = static_cast<int>(random.below(all.size()));
    const int end =
        begin + 1 + static_cast<int>(random.below(static_cast<uint64_t>(count - begin)));
    int runs = 0;
    for (int at = begin; at < end; ++runs) {
      const ExpertRun run = expert_run(e, at, end);
      ASSERT_GT(run.count, 0);
      ASSERT_LE(at + run.count, end);
      for (int i = 0; i < run.count; ++i, ++at)
        ASSERT_EQ(all[static_cast<size_t>(at)], (ExpertRun{run.set, run.slot, run.first + i, 1}));
    }
    EXPECT_LE(runs, most_expert_runs(e, end - begin));
  }
}

TEST(ExpertPhases, InputsOfChoicesFollowEachOther) {
  ExpertPhase e;
  e.chosen = 3;
  e.per_slot = 2;
  e.per_shared = 4;
  e.width = 400;
  e.shared_width = 900;
  EXPECT_EQ(input_slot(e, 5).k_tile, 5) << "one row";
  e.by_row = true;
  for (int k_tile = 0; k_tile < 10; ++k_tile) {
    const InputSlot at = input_slot(e, k_tile);
    EXPECT_EQ(at.slot, std::min(k_tile / 2, 3));
    EXPECT_EQ(at.k_tile, k_tile - 2 * at.slot);
    EXPECT_EQ(at.first, 400 * at.slot);
  }
}

RouteRule rule_of(int experts, int chosen) {
  RouteRule rule;
  rule.experts = experts;
  rule.chosen = chosen;
  return rule;
}

TEST(PersistentKernel, MultipliesChosenExpertsAsDefined) {
  expect_layers({512, 256, rule_of(8, 3), 256, 0, false, false}, 2, 4);
}

// The widths are not multiples of a k-tile; the shared expert has another width, and a logit of its
// own decides its weight.
TEST(PersistentKernel, HasSharedExpertsAndChoicesOfGroups) {
  RouteRule rule = rule_of(12, 2);
  rule.sigmoid = true;
  rule.groups = 4;
  rule.groups_chosen = 2;
  rule.group_best = 2;
  rule.scale = 1.5f;
  expect_layers({768, 256, rule, 400, 272, true, true}, 1, 6);
  expect_layers({512, 256, rule, 304, 608, false, true}, 1, 8);
}

// An input of down has more k-tiles than a pair of blocks makes: one of every expert.
TEST(PersistentKernel, SharesLongInputsOfExperts) {
  RouteRule rule = rule_of(36, 33);
  rule.normalized = false;
  expect_layers({288, 288, rule, 16, 0, false, false}, 1, 18);
}

TEST(PersistentKernel, HasExpertsOfOtherCodesThanOtherMatrices) {
  expect_layers({512, 256, rule_of(8, 2), 256, 512, true, false, 2, 4}, 1, 4);
  expect_layers({512, 256, rule_of(8, 2), 256, 0, false, false, 4, 3}, 2, 6);
}

// Runs of a warp would be of more experts than it has pieces for.
TEST(PersistentKernel, SaysNoToExpertsThatItHasNoPhasesFor) {
  const Shape s{512, 256, rule_of(8, 2), 64, 64, true, false};
  Random random(8);
  Layer layer(random, s, 1);
  const Buffer x(512 * sizeof(float)), mixed(256 * sizeof(float));
  const auto says = [&](const Change& change) {
    PersistentProgram program;
    return add_layer(program, layer, s, x.as<float>(), mixed.as<float>(), change);
  };
  EXPECT_TRUE(says({}));
  EXPECT_FALSE(says([&](ExpertStep& e) { e.expert.gate.bias = x.as<float>(); })) << "bias";
  EXPECT_FALSE(says([&](ExpertStep& e) { e.shared.down.bias = x.as<float>(); })) << "bias";
  EXPECT_FALSE(says([](ExpertStep& e) { e.function = GateFunction::gelu_tanh; })) << "gate";
  EXPECT_FALSE(says([](ExpertStep& e) { e.expert.up.pass[1] = e.expert.up.pass[0]; })) << "passes";
  EXPECT_FALSE(says([](ExpertStep& e) { e.expert.down.pass[0] = nullptr; })) << "plain";
  EXPECT_FALSE(says([](ExpertStep& e) { e.source.up = e.source.x; })) << "product of two";
  EXPECT_FALSE(says([](ExpertStep& e) { e.rule.groups = 3; })) << "groups of different sizes";
  EXPECT_FALSE(says([](ExpertStep& e) { e.rule.chosen = 9; })) << "more than there are";
  DenseMatrix router = layer.device_router;
  router.type = DType::bf16;
  EXPECT_FALSE(says([&](ExpertStep& e) { e.router = &router; })) << "router";
}

TEST(PersistentKernel, TakesTheFirstOfEqualExperts) {
  Shape s{512, 256, rule_of(6, 2), 256, 0, false, false};
  s.equal = true;
  expect_layers(s, 1, 4);
}

// There is one expert, which every token has; then tokens have all.
TEST(PersistentKernel, HasAsManyChoicesAsExperts) {
  expect_layers({512, 256, rule_of(1, 1), 256, 0, false, false}, 2, 4);
  expect_layers({512, 256, rule_of(3, 3), 128, 0, false, false}, 2, 4);
}

TEST(PersistentKernel, SaysNoToExpertsThatAreTooSmallForFewBlocks) {
  emulated::multiprocessors = 2;
  const Shape s{512, 256, rule_of(8, 6), 16, 0, false, false};
  Random random(8);
  Layer layer(random, s, 1);
  const Buffer x(512 * sizeof(float)), mixed(256 * sizeof(float));
  PersistentProgram program;
  ASSERT_TRUE(add_layer(program, layer, s, x.as<float>(), mixed.as<float>()));
  EXPECT_FALSE(program.finish());
}

}  // namespace
}  // namespace walsh::cuda
