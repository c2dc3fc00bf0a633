// Tests that windows of a text begin with BOS only if the tokenizer puts BOS before texts.
#include <gtest/gtest.h>

#include "api/calibrate.h"
#include "api/model_variant.h"
#include "threads.h"
#include "walsh/engine.h"

namespace walsh {
namespace {

using test::kModel;
using test::ModelVariant;

constexpr const char* kConfig = "tokenizer_config.json";
const std::string kText = std::string(WALSH_SOURCE_DIR) + "/models/eval.txt";

class BosWindows : public testing::Test {
 protected:
  BosWindows() {
    // Both add nothing; only the first one knows what BOS would be.
    quiet_.set(kConfig, {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}});
    without_.set(
        kConfig,
        {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}, {"bos_token", nullptr}});
  }

  ModelVariant quiet_{"quiet"}, without_{"without"};
};

TEST_F(BosWindows, OfPerplexity) {
  const std::string text =
      "The river was low that summer, and the children walked across it on the flat stones. In the "
      "evening the old men sat under the trees and talked about the rain that had not come.";
  const auto perplexity = [&](const std::string& folder) {
    EngineOptions options;
    options.device = "cpu";
    options.threads = 1;
    return Engine::open(folder, options).perplexity(text, 16).perplexity;
  };
  EXPECT_EQ(perplexity(quiet_.path()), perplexity(without_.path()));
  EXPECT_NE(perplexity(quiet_.path()), perplexity(kModel));
}

TEST_F(BosWindows, OfCalibration) {
  ThreadPool pool(test::kThreads);
  const auto codes = [&](const std::string& folder) {
    Recipe recipe;
    recipe.type = &get_format("tq3");
    recipe.encode.effort = Effort::fast;
    const auto source = open_calibrated(folder, recipe, {kText, 512, {}, {}}, pool);
    const Tensor tensor = source->load("model.layers.0.self_attn.k_proj.weight");
    return std::vector<std::byte>(tensor.pass[0].codes.begin(), tensor.pass[0].codes.end());
  };
  EXPECT_EQ(codes(quiet_.path()), codes(without_.path()));
  EXPECT_NE(codes(quiet_.path()), codes(kModel));
}

}  // namespace
}  // namespace walsh
