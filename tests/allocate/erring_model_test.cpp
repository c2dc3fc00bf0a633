#include "allocate/erring_model.h"

#include <gtest/gtest.h>

#include "allocate/tiny_model.h"
#include "eval/evaluator.h"
#include "model/model_support.h"
#include "threads.h"

namespace walsh {
namespace {

using test::formats;
using test::recipe_of;

constexpr int64_t kWindow = 24;

// There is one of each kind of layer: dense, recurrent, with a window, keys and values of earlier
// layers, experts, latent attention.
const char* const kModels[] = {"llama31-tiny", "qwen35-tiny",    "gemma3-tiny",
                               "gemma4-tiny",  "qwen3-moe-tiny", "deepseek-v2-tiny"};

class ErringModelTest : public testing::TestWithParam<const char*> {
 protected:
  ErringModelTest()
      : candidates_([this](const Recipe& recipe) { return open(recipe); }, recipe_of("tq3"),
                    formats({"tq3", "tq4"}), true),
        stand_in_(open(candidates_.stand_in_recipe()), pool_),
        model_(candidates_.tensors(), stand_in_, load()),
        text_(model_.text(windows(), {})) {}

  std::unique_ptr<Compressor> open(const Recipe& recipe) {
    return open_compressor(test::tiny_model(GetParam()), recipe, pool_);
  }
  LoadOptions load() {
    LoadOptions options;
    options.pool = &pool_;
    return options;
  }
  static std::vector<std::vector<int32_t>> windows() {
    const std::vector<int32_t> tokens = test::TinyModel::text(2 * kWindow);
    return {{tokens.begin(), tokens.begin() + kWindow}, {tokens.begin() + kWindow, tokens.end()}};
  }
  std::vector<double> only(size_t tensor, double error) const {
    std::vector<double> errors(candidates_.tensors().size());
    errors[tensor] = error;
    return errors;
  }

  ThreadPool pool_{test::kThreads};
  Candidates candidates_;
  StandIn stand_in_;
  ErringModel model_;
  std::unique_ptr<ErringModel::Text> text_;
};

TEST_P(ErringModelTest, WhatIsInFrontOfATensorNeedsNoSecondRun) {
  const std::vector<double> levels = {0.01, 0.05};
  int64_t measurements = 0;
  const auto alone = model_.alone(*text_, levels, [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, measurements++);
    EXPECT_LT(done, total);
  });
  ASSERT_EQ(alone.size(), candidates_.tensors().size());
  for (size_t t = 0; t < alone.size(); ++t) {
    for (size_t i = 0; i < levels.size(); ++i)
      EXPECT_EQ(alone[t][i], model_.divergence(*text_, only(t, levels[i])).value)
          << candidates_.tensors()[t].name;
    EXPECT_GT(alone[t][1], 0) << candidates_.tensors()[t].name;
  }
}

TEST_P(ErringModelTest, WhatErredIsExactAgain) {
  const std::vector<double> errors(candidates_.tensors().size(), 0.03);
  const double first = model_.divergence(*text_, errors).value;
  EXPECT_GT(first, 0);
  EXPECT_EQ(model_.divergence(*text_, std::vector<double>(errors.size())).value, 0);
  EXPECT_EQ(model_.divergence(*text_, errors).value, first);
}

INSTANTIATE_TEST_SUITE_P(Models, ErringModelTest, testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Without scaling, the stand-in errs only by its own code.
TEST(ErringModel, DivergesAsTheModelThatIsQuantizedSo) {
  ThreadPool pool(test::kThreads);
  const test::TinyModel tiny;
  const Candidates candidates(tiny.opener(pool), recipe_of("tq3"), formats({"tq3"}), false);
  StandIn stand_in(tiny.opener(pool)(candidates.stand_in_recipe()), pool);
  LoadOptions load;
  load.pool = &pool;
  load.activations = ActivationMode::f32;
  ErringModel model(candidates.tensors(), stand_in, load);
  const std::vector<int32_t> tokens = test::TinyModel::text(64);
  const auto text = model.text({tokens}, {});
  const std::vector<double> errors(candidates.tensors().size(), declared_nmse(get_format("tq3")));
  const double found = model.divergence(*text, errors).value;
  const auto quantized = tiny.opener(pool)(recipe_of("tq3"));
  const ModelConfig config = parse_config(quantized->config_json(), "config.json");
  EvalOptions eval;
  eval.windows = {WindowRule::full, 64, 0, 1};
  const Evaluation expected =
      evaluate(Model::load(*quantized, config, load), &model.model(), tokens, eval);
  EXPECT_NEAR(found, expected.divergence->kld().value, 1e-3 * found);
}

}  // namespace
}  // namespace walsh
