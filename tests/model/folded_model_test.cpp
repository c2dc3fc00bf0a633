// Tests models whose rotation is folded into the residual stream against the unfolded models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arch/plan.h"
#include "model/op_count.h"
#include "model_support.h"
#include "quantize/pipeline/open.h"
#include "threads.h"

namespace walsh {
namespace {

Recipe folded(const std::string& type, int block = 0) {
  Recipe recipe;
  recipe.type = &get_format(type);
  recipe.rotate = RotateAt::residual;
  recipe.block = block;
  recipe.encode.effort = Effort::fast;
  return recipe;
}

Model load(const std::string& folder, const Recipe* recipe, ThreadPool& pool) {
  const auto source = open_source(folder, recipe, pool);
  const ModelConfig config = parse_config(source->config_json(), folder);
  return Model::load(*source, config, {&pool, ActivationMode::automatic, {}});
}

std::vector<std::vector<float>> logits_of(const Model& model, const std::vector<int32_t>& tokens) {
  Session session(model, {128});
  return test::all_logits(session, tokens);
}

std::vector<int32_t> tokens_of(size_t count, size_t vocab = 128) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((i * 37 + i * i * 11) % vocab));
  return tokens;
}

// Returns the largest difference relative to the largest logit of a row.
double largest_difference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double difference = 0, scale = 0;
    for (size_t j = 0; j < a[i].size(); ++j) {
      difference = std::max<double>(difference, std::fabs(a[i][j] - b[i][j]));
      scale = std::max<double>(scale, std::fabs(b[i][j]));
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

// Returns the error relative to the logits' own size.
double relative_error(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      error += std::pow(double{a[i][j]} - double{b[i][j]}, 2);
      norm += std::pow(double{b[i][j]}, 2);
    }
  }
  return std::sqrt(error / norm);
}

// These models have biases everywhere, QK-norms, odd head sizes, tied heads, windows.
class FoldedModel : public testing::TestWithParam<const char*> {
 protected:
  // Loads the model folded but for the matrices between v and o.
  Model load_without_heads(const Recipe& recipe) {
    Checkpoint checkpoint = Checkpoint::open(folder_);
    ModelPlan plan = read_plan(checkpoint.config_json(), folder_);
    for (FoldedTensor& tensor : plan.residual.tensors) {
      for (Basis* basis : {&tensor.rows, &tensor.cols})
        if (*basis == Basis::heads) *basis = Basis::own;
    }
    Compressor source(std::move(checkpoint), std::move(plan), recipe, pool_);
    const ModelConfig config = parse_config(source.config_json(), folder_);
    return Model::load(source, config, {&pool_, ActivationMode::automatic, {}});
  }

  ThreadPool pool_{test::kThreads};
  std::string folder_ = test::tiny_model(GetParam());
};

// The cache keeps values as fp16, and in another basis their rounding is another one: without the
// heads' matrices the logits agree much better.
TEST_P(FoldedModel, HasTheLogitsOfTheCheckpoint) {
  const auto tokens = tokens_of(50);
  const auto expected = logits_of(load(folder_, nullptr, pool_), tokens);
  for (const int block : {0, 32}) {
    const Recipe recipe = folded("f32", block);
    EXPECT_LT(largest_difference(logits_of(load(folder_, &recipe, pool_), tokens), expected), 3e-3);
    EXPECT_LT(largest_difference(logits_of(load_without_heads(recipe), tokens), expected), 1e-3);
  }
}

TEST_P(FoldedModel, IsNearlyTheSameInCodesOfEightBits) {
  const auto tokens = tokens_of(50);
  const auto expected = logits_of(load(folder_, nullptr, pool_), tokens);
  for (const char* type : {"tq4+4", "q8_0"}) {
    const Recipe recipe = folded(type);
    EXPECT_LT(relative_error(logits_of(load(folder_, &recipe, pool_), tokens), expected), 0.05)
        << type;
  }
}

TEST_P(FoldedModel, OutputsAreRotatedBackBeforeTheirBias) {
  const auto tokens = tokens_of(50);
  const auto expected = logits_of(load(folder_, nullptr, pool_), tokens);
  Recipe recipe = folded("tq4+4");
  recipe.rotate = RotateAt::both;
  const Model model = load(folder_, &recipe, pool_);
  EXPECT_LT(relative_error(logits_of(model, tokens), expected), 0.05);
  uint64_t rotated = 0;
  for (const Linear& linear : model.layers[0].matrices)
    rotated += linear.rows % 32 == 0;
  EXPECT_GT(rotated, 2u);
  EXPECT_EQ(count_layer(model, 0).transforms, 2 * 4 + rotated) << "two passes";
}

TEST_P(FoldedModel, RotatesOneActivationPerLayerInsteadOfFour) {
  const Recipe recipe = folded("tq3");
  Recipe plain = recipe;
  plain.rotate = RotateAt::input;
  const Model with = load(folder_, &recipe, pool_), without = load(folder_, &plain, pool_);
  const OpCount a = count_layer(with, 0), b = count_layer(without, 0);
  EXPECT_EQ(a.transforms, 1u);
  EXPECT_EQ(b.transforms, 4u);
  EXPECT_LT(a.multiplications, b.multiplications);
  EXPECT_LT(a.additions, b.additions);
  EXPECT_EQ(count_head(with).transforms, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, FoldedModel,
                         testing::Values("llama2-bias-tiny", "llama31-tiny", "mistral-tiny",
                                         "qwen2-tiny", "qwen2-window-tiny", "qwen3-tiny",
                                         "gemma-tiny", "glm-tiny", "granite-tiny",
                                         "ministral3-tiny", "smollm3-bias-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The counts above do not fit these models: experts, latents, recurrent layers.
class FoldedMixture : public FoldedModel {};

TEST_P(FoldedMixture, HasTheLogitsOfTheCheckpoint) {
  const Model model = load(folder_, nullptr, pool_);
  const auto tokens =
      tokens_of(50, static_cast<size_t>(std::min<int64_t>(128, model.config.vocab)));
  const auto expected = logits_of(model, tokens);
  for (const int block : {0, 32}) {
    const Recipe recipe = folded("f32", block);
    EXPECT_LT(largest_difference(logits_of(load(folder_, &recipe, pool_), tokens), expected), 3e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FoldedMixture,
                         testing::Values("deepseek-v2-tiny", "deepseek-v2-dense-tiny",
                                         "deepseek-v3-tiny", "llama4-step-tiny", "mixtral-tiny",
                                         "qwen35-tiny", "lfm2-bias-tiny", "lfm2-moe-tiny",
                                         "granite-hybrid-dense-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

std::vector<int32_t> greedy_text(const Model& model, std::vector<int32_t> tokens, int count) {
  Session session(model, {128});
  std::vector<int32_t> text;
  for (int i = 0; i < count; ++i) {
    const std::vector<float> logits = test::all_logits(session, tokens).back();
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    text.push_back(static_cast<int32_t>(best));
    tokens = {text.back()};
  }
  return text;
}

TEST(FoldedText, TheGreedyTextOfATrainedModelIsTheSame) {
  ThreadPool pool(test::kThreads);
  const std::string folder = test::model_folder("walsh-tiny-13m");
  ASSERT_FALSE(folder.empty());
  const Recipe recipe = folded("f32");
  const Model plain = load(folder, nullptr, pool), same = load(folder, &recipe, pool);
  EXPECT_FALSE(same.config.tied_head);
  const std::vector<int32_t> prompt = {1, 700, 45, 3000, 12, 99};
  EXPECT_EQ(greedy_text(plain, prompt, 48), greedy_text(same, prompt, 48));
  EXPECT_LT(largest_difference(logits_of(plain, prompt), logits_of(same, prompt)), 1e-3);
}

TEST(FoldedPlan, AHiddenSizeThatBlocksDoNotFillIsRefused) {
  ModelConfig config = parse_config(
      test::read_file(test::tiny_model("mistral-tiny") + "/config.json"), "config.json");
  EXPECT_EQ(make_plan(config).residual.refusal, "");
  config.hidden = 100;
  EXPECT_NE(make_plan(config).residual.refusal.find("100"), std::string::npos);
}

}  // namespace
}  // namespace walsh
