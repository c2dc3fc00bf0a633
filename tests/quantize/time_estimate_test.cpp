#include "quantize/pipeline/time_estimate.h"

#include <gtest/gtest.h>

#include <vector>

namespace walsh {
namespace {

struct Step {
  std::string kind;
  double work, seconds;
};

// Holds formats of the embedding, the layers and the head, and the nanoseconds that their weights
// take on some machine.
struct Machine {
  const char *embedding, *linear, *head;
  double embedding_ns, linear_ns, head_ns;
  double measuring = 0;  // seconds that calibration takes per layer, and what was expected
  double measuring_expected = 0;
};

// Returns the steps of a model with layers of 2048 x 8192.
std::vector<Step> steps_of(const Machine& m, int layers) {
  std::vector<Step> steps;
  const auto add = [&](const std::string& name, const char* format, double weights, double ns) {
    const Format& f = get_format(format);
    const double cost = encoding_cost(f, {}, f.dense && ns > 1);
    steps.push_back({step_kind(name, f), weights * cost, 1e-9 * weights * ns});
  };
  add("model.embed_tokens.weight", m.embedding, 128e3 * 2048, m.embedding_ns);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (m.measuring > 0) steps.push_back({"measuring", 1e9 * m.measuring_expected, m.measuring});
    add(prefix + "input_layernorm.weight", "f32", 2048, 100);
    for (const char* name : {"q", "k", "v", "o"}) {
      const double weights = 2048.0 * (name[0] == 'k' || name[0] == 'v' ? 512 : 2048);
      add(prefix + name + "_proj.weight", m.linear, weights, m.linear_ns);
    }
    for (const char* name : {"gate", "up", "down"})
      add(prefix + name + "_proj.weight", m.linear, 2048.0 * 8192, m.linear_ns);
  }
  add("lm_head.weight", m.head, 128e3 * 2048, m.head_ns);
  return steps;
}

// For a run of constant speed the estimate is right within a factor of two after the first tenth.
void expect_good_estimates(const Machine& machine, int layers) {
  const std::vector<Step> steps = steps_of(machine, layers);
  TimeEstimate estimate;
  double total = 0, done = 0;
  for (const Step& s : steps) {
    estimate.add(s.kind, s.work);
    total += s.seconds;
  }
  EXPECT_LT(estimate.seconds_left(), 0);
  for (const Step& s : steps) {
    estimate.finish(s.kind, s.work, s.seconds);
    done += s.seconds;
    if (done < 0.1 * total || &s == &steps.back()) continue;
    const double left = total - done;
    EXPECT_LT(estimate.seconds_left(), 2 * left) << layers << " layers, after " << s.kind;
    EXPECT_GT(estimate.seconds_left(), 0.5 * left) << layers << " layers, after " << s.kind;
  }
  EXPECT_NEAR(estimate.seconds_left(), 0, 1e-9 * total);
}

// The costs were measured with AVX-512, AVX2 and scalar code, and beside other work.
TEST(TimeEstimate, IsGoodWithinAFactorOfTwoAfterTheFirstTenth) {
  const Machine machines[] = {
      {"bf16", "tc3:h", "bf16", 1, 1700, 1},
      {"tq4", "tc3:hq", "tq4", 48, 1700, 48},
      {"tq4", "tc3:h", "bf16", 50, 2500, 1},
      {"tq4", "tc3:h", "tq4", 120, 77000, 120},
      {"q8_0", "tc2.5:h", "q8_0", 11, 1900, 11},
      {"tc4", "tc2.5", "tc4", 1700, 1900, 1800},
      {"tq4", "pq3", "tq4", 48, 667, 48},
      {"bf16", "tq3", "q8_0", 2, 33, 11},
      {"tq4", "tq2", "tq4+4", 48, 23, 95},
      {"itq3_s8", "itq3_s", "tq2", 82, 66, 36},
      {"bf16", "tc3:h", "bf16", 1, 4900, 1},
      {"tq3", "tq3", "tq3", 60, 60, 60},
      {"bf16", "tc3:h", "bf16", 1, 1700, 1, 9, 3},
      {"tq4", "tq3", "tq4", 48, 60, 48, 8, 6},
      {"tc3:h", "tc3:h", "tc3:h", 1700, 2600, 1700, 5, 8},
      {"tq4", "tc3", "tq4", 48, 1700, 48},
      {"bf16", "tc4:h:L14", "tc3", 1, 500, 1700},
  };
  for (const Machine& machine : machines) {
    for (const int layers : {12, 32, 80})
      expect_good_estimates(machine, layers);
  }
}

TEST(TimeEstimate, WhatWasNotNecessaryTellsNothing) {
  TimeEstimate estimate;
  estimate.add("tc3 a.#", 10);
  estimate.add("tc3 a.#", 10);
  estimate.add("tc3 b.#", 30);
  estimate.skip("tc3 a.#", 10);
  EXPECT_LT(estimate.seconds_left(), 0);
  estimate.finish("tc3 a.#", 10, 5);
  EXPECT_DOUBLE_EQ(estimate.seconds_left(), 15);
  estimate.skip("tc3 b.#", 30);
  EXPECT_DOUBLE_EQ(estimate.seconds_left(), 0);
}

TEST(TimeEstimate, StepsWithoutWorkTakeNoTime) {
  TimeEstimate estimate;
  estimate.add("measuring", 0);
  estimate.add("tc3 a.#", 20);
  estimate.finish("measuring", 0, 0.5);
  EXPECT_LT(estimate.seconds_left(), 0);
  estimate.finish("tc3 a.#", 10, 5);
  EXPECT_DOUBLE_EQ(estimate.seconds_left(), 5);
}

TEST(TimeEstimate, KindsAreTensorsThatDifferInTheirLayer) {
  const Format& tc3 = get_format("tc3");
  EXPECT_EQ(step_kind("model.layers.7.mlp.up_proj.weight", tc3),
            step_kind("model.layers.41.mlp.up_proj.weight", tc3));
  EXPECT_NE(step_kind("model.layers.7.mlp.up_proj.weight", tc3),
            step_kind("model.layers.7.mlp.gate_proj.weight", tc3));
  EXPECT_NE(step_kind("model.layers.7.mlp.up_proj.weight", tc3),
            step_kind("model.layers.7.mlp.up_proj.weight", get_format("tc4")));
}

}  // namespace
}  // namespace walsh
