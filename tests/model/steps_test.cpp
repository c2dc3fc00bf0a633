// Tests the list of steps of a model: that it names everything that a model has, and that it is
// known before a tensor is read.
#include "model/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/synthetic.h"
#include "model_support.h"

namespace walsh {
namespace {

class StepsOf : public testing::TestWithParam<const char*> {
 protected:
  ModelConfig config() const { return parse_config(source_.config_json(), "test"); }

  const Format& coded_ = get_format("tq3");
  SyntheticSource source_{GetParam(), {&coded_, &coded_, &coded_}};
};

// A step multiplies with every matrix of the description, and no two with the same one.
TEST_P(StepsOf, NameEveryMatrixOnce) {
  const ModelConfig c = config();
  const ModelSteps steps = make_steps(c);
  ASSERT_EQ(steps.layers.size(), c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    std::vector<int> named;
    const auto name = [&](const Step& step) {
      const std::vector<int> own = matrices_of(step);
      named.insert(named.end(), own.begin(), own.end());
    };
    for (const Step& step : steps.embed)
      if (step.layer == static_cast<int>(i)) name(step);
    for (const Step& step : steps.layers[i].steps)
      name(step);
    std::sort(named.begin(), named.end());
    ASSERT_EQ(named.size(), c.layers[i].matrices.size()) << "layer " << i;
    for (size_t m = 0; m < named.size(); ++m)
      EXPECT_EQ(named[m], static_cast<int>(m)) << "layer " << i;
  }
}

// Widths of operands are those of the matrices that read and write them.
TEST_P(StepsOf, GiveOperandsTheWidthsOfTheirMatrices) {
  const ModelConfig c = config();
  const ModelSteps steps = make_steps(c);
  const auto strides = steps.strides();
  for (const LayerSteps& layer : steps.layers) {
    for (const Step& step : layer.steps) {
      for (const Operand& operand : operands_of(step)) {
        EXPECT_LE(operand.width, operand.stride);
        EXPECT_LE(operand.stride, strides[static_cast<size_t>(operand.rows)]);
      }
      const auto* product = std::get_if<step::Product>(&step.op);
      if (product == nullptr) continue;
      const LayerDesc& desc = c.layers[static_cast<size_t>(step.layer)];
      for (const step::Product::Output& output : product->outputs) {
        const MatrixDesc& m = desc.matrix(output.matrix);
        EXPECT_EQ(m.input, product->input) << m.weight;
        EXPECT_EQ(m.rows, output.to.width) << m.weight;
        EXPECT_EQ(m.cols, product->from.width) << m.weight;
      }
    }
  }
}

// Only what goes to a cache or a state is needed of rows whose logits nobody wants, and the rest of
// the last layers is not, where these attend to caches of earlier ones.
TEST_P(StepsOf, NeedOnlyWantedRowsBehindTheLastCache) {
  const ModelConfig c = config();
  const ModelSteps steps = make_steps(c);
  size_t last = steps.layers.size() - 1;  // it has a cache or a state, or is just the last one
  while (last > 0 && c.layers[last].attention.cache_of >= 0)
    --last;
  for (size_t i = 0; i < steps.layers.size(); ++i) {
    bool behind = false;
    for (const Step& step : steps.layers[i].steps) {
      behind |= std::holds_alternative<step::Attend>(step.op) ||
                std::holds_alternative<step::DeltaRule>(step.op);
      EXPECT_EQ(step.only_wanted, behind && i >= last);
      EXPECT_EQ(step.changes_state, std::holds_alternative<step::DeltaRule>(step.op));
    }
    EXPECT_TRUE(behind) << "layer " << i;
  }
}

// What is known of matrices before loading is what the loaded model has, and vectors are as long as
// their entries say.
TEST_P(StepsOf, AreThoseOfTheLoadedModel) {
  ThreadPool pool(1);
  LoadOptions options;
  options.pool = &pool;
  const ModelConfig c = config();
  const ModelSteps before = make_steps(c, source_, options);
  const Model model = Model::load(source_, c, options);
  EXPECT_EQ(before.buffers, model.steps.buffers);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSteps& layer = before.layers[i];
    for (size_t m = 0; m < layer.matrices.size(); ++m) {
      const Linear& linear = model.layers[i].matrices[m];
      EXPECT_EQ(layer.matrices[m].stored.format->name, linear.stored->name);
      EXPECT_EQ(layer.matrices[m].input[0], linear.input[0]);
    }
    ASSERT_EQ(layer.vectors.size(), model.layers[i].vectors.size());
    for (size_t v = 0; v < layer.vectors.size(); ++v) {
      EXPECT_EQ(layer.vectors[v].size(), static_cast<int64_t>(model.layers[i].vectors[v].size()))
          << layer.vectors[v].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StepsOf,
                         testing::Values("tiny", "tiny-moe", "tiny-latent", "tiny-chunks",
                                         "tiny-delta", "tiny-next", "tiny-gemma4",
                                         "tiny-gemma4-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Steps, WhatASourceDoesNotHaveHasNoForm) {
  const Format& coded = get_format("tq3");
  const SyntheticSource source("tiny", {&coded, &coded, &coded});
  ModelConfig config = parse_config(source.config_json(), "test");
  config.layers[1].matrices[2].weight = "absent";
  const ModelSteps steps = make_steps(config, source, {});
  EXPECT_EQ(steps.layers[1].matrices[2].stored.format, nullptr);
  EXPECT_EQ(steps.layers[1].matrices[1].stored.format, &coded);
}

}  // namespace
}  // namespace walsh
