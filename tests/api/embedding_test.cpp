// Embeddings from the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "walsh/batch.h"
#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr const char* kModel = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";

const std::vector<std::string> kTexts = {"The river is frozen.", "Bread", "A mill beside the river",
                                         "The river is high."};

class EmbeddingTest : public testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options;
    options.threads = 2;
    options.device = "cpu";
    options.context = 128;
    return options;
  }
  template <class Call>
  void expect_error(const Call& call, const char* message) {
    try {
      call();
      ADD_FAILURE() << message;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  }

  Engine engine_ = Engine::open(kModel, options());
};

TEST_F(EmbeddingTest, TextsTogetherGiveWhatEachGivesAlone) {
  const auto alone = engine_.embed(kTexts);
  ASSERT_EQ(alone.size(), kTexts.size());
  TextBatch batch(engine_, {.running = 3, .waiting = 0});
  EXPECT_THAT(batch.embed(kTexts), ElementsAreArray(alone));
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& text : kTexts)
    tokens.push_back(engine_.encode(text));
  EXPECT_THAT(batch.embed_tokens(tokens), ElementsAreArray(alone));
  for (const std::vector<float>& values : alone) {
    EXPECT_EQ(std::ssize(values), engine_.hidden_size());
    double squares = 0;
    for (const float v : values)
      squares += double{v} * double{v};
    EXPECT_NEAR(squares, 1, 1e-5);
  }
}

TEST_F(EmbeddingTest, TextsAreGeneratedBehindThemAsBefore) {
  GenerationOptions greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 12;
  const std::string text = engine_.generate("The river", greedy).text;
  engine_.embed(kTexts);
  EXPECT_EQ(engine_.generate("The river", greedy).text, text);
}

TEST_F(EmbeddingTest, OptionsChooseStatesAndValues) {
  EmbeddingOptions options;
  options.normalize = false;
  options.pooling = "cls";
  const std::vector<std::string> alike = {kTexts[0], kTexts[3]};
  const auto first = engine_.embed(alike, options);
  EXPECT_EQ(first[0], first[1]);  // they begin with the same token
  options.pooling = "mean";
  EXPECT_NE(engine_.embed(alike, options)[0], engine_.embed(alike, options)[1]);
  options.dimensions = 5;
  EXPECT_EQ(engine_.embed(alike, options)[0].size(), 5u);
}

TEST_F(EmbeddingTest, WrongOptionsAndTextsAreRefused) {
  const auto with = [&](const std::string& pooling, int64_t dimensions) {
    EmbeddingOptions options;
    options.pooling = pooling;
    options.dimensions = dimensions;
    engine_.embed(kTexts, options);
  };
  expect_error([&] { with("max", 0); }, "'max' is unknown, expected last, mean or cls");
  expect_error([&] { with("", -1); }, "dimensions");
  expect_error([&] { with("", 1 << 20); }, "dimensions");
  const std::vector<std::vector<int32_t>> none = {{}}, long_one = {std::vector<int32_t>(129, 5)},
                                          unknown = {{1 << 30}};
  expect_error([&] { engine_.embed_tokens(none); }, "has no tokens");
  expect_error([&] { engine_.embed_tokens(long_one); }, "has 129 tokens, but there are only 128");
  expect_error([&] { engine_.embed_tokens(unknown); }, "outside the vocabulary");
  EXPECT_EQ(engine_.embed(kTexts).size(), kTexts.size());
}

}  // namespace
}  // namespace walsh
