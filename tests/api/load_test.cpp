#include "api/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "api/model_variant.h"
#include "quantize/recipe/recipe.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::kModel;
using test::ModelVariant;

class Load : public testing::Test {
 protected:
  Load() { options_.pool = &pool_; }

  ThreadPool pool_{test::kThreads};
  LoadOptions options_;
};

TEST_F(Load, GivesTheModelWithTheTextsBesideIt) {
  const LoadedModel loaded = load_model(kModel, nullptr, options_);
  EXPECT_EQ(loaded.path, kModel);
  EXPECT_EQ(loaded.model.type_name(), "bf16");
  EXPECT_LE(loaded.tokenizer.vocab_size(), loaded.model.config.vocab);
  EXPECT_EQ(loaded.generation.stop_ids(), loaded.model.config.eos);
  EXPECT_EQ(loaded.notes, std::vector<std::string>());
}

TEST_F(Load, CompressesAFolderOnTheWay) {
  Recipe recipe;
  recipe.type = &get_format("tq3");
  recipe.encode.effort = Effort::fast;
  const auto source = open_weights(kModel, &recipe, pool_);
  EXPECT_EQ(load_weights(*source, options_).type_name(), "tq3");
}

TEST_F(Load, ShapesWithRandomWeightsHaveNames) {
  const LoadedModel loaded = load_model("synthetic:tiny:tq4", nullptr, options_);
  EXPECT_EQ(loaded.model.type_name(), "tq4");
  EXPECT_EQ(loaded.tokenizer.vocab_size(), loaded.model.config.vocab);
  const std::string text = "a text of d \xC3\xA9";
  const std::vector<int32_t> ids = loaded.tokenizer.encode(text, true);
  EXPECT_THAT(ids, testing::Contains(testing::Ge(256))) << "words are tokens";
  EXPECT_EQ(loaded.tokenizer.decode(ids, false), text);
  const LoadedModel ends = load_model("synthetic:tiny:tq4,f16", nullptr, options_);
  EXPECT_EQ(ends.model.type_name(), "tq4");
  EXPECT_EQ(ends.model.head.format, &get_format("f16"));
  for (const char* name : {"synthetic:tiny", "synthetic:none:tq4", "synthetic:tiny:none"})
    EXPECT_THROW(load_model(name, nullptr, options_), Error) << name;
  Recipe recipe;
  recipe.type = &get_format("tq3");
  EXPECT_THROW(load_model("synthetic:tiny:tq4", &recipe, options_), Error);
}

TEST_F(Load, AModelWithoutTokenizerIsRefusedBeforeItsWeightsAreRead) {
  ModelVariant folder("load");
  folder.remove("tokenizer.json");
  int tensors = 0;
  options_.progress = [&](size_t, size_t, const std::string&) { ++tensors; };
  try {
    load_model(folder.path(), nullptr, options_);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_EQ(e.where(), folder.path());
    EXPECT_TRUE(e.reason().starts_with("there is no tokenizer.json: ")) << e.what();
  }
  EXPECT_EQ(tensors, 0);
  const auto source = open_weights(folder.path(), nullptr, pool_);
  EXPECT_EQ(load_weights(*source, options_).type_name(), "bf16") << "weights need no tokenizer";
  EXPECT_GT(tensors, 0);
}

TEST_F(Load, ProgressMayStopIt) {
  options_.progress = [](size_t done, size_t, const std::string&) {
    if (done == 3) throw std::runtime_error("stop");
  };
  EXPECT_THROW(load_model(kModel, nullptr, options_), std::runtime_error);
}

}  // namespace
}  // namespace walsh
