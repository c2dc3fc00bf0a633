// Tests the layer that predicts further tokens against its definition (tools/golden_ahead.py).
#include "model/ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "quantize/pipeline/open.h"
#include "quantize/pipeline/pipeline.h"
#include "temporary_folder.h"
#include "threads.h"

namespace walsh {
namespace {

using test::AheadModel;
using test::kAheadModels;

struct Expected {
  std::vector<int32_t> tokens, guesses;
  test::Rows logits;
};

Expected read_expected(const std::string& name) {
  const auto json =
      nlohmann::json::parse(test::read_file(test::ahead_folder(name) + "/expected.json"));
  Expected e;
  json.at("tokens").get_to(e.tokens);
  json.at("guesses").get_to(e.guesses);
  json.at("logits").get_to(e.logits);
  return e;
}

// Returns the layer's logits of all rows of a text, then of guesses, each of which joins the output
// for the one before it. The model reads its text in pieces of so many tokens.
test::Rows logits_of(const AheadModel& models, const Expected& e, size_t piece) {
  const size_t rows = e.tokens.size() - 1;
  Session model(models.model, {128}), layer(models.layer, {128});
  std::vector<float> streams;
  for (size_t at = 0; at < rows; at += piece) {
    SequenceTokens item{0, std::span(e.tokens).subspan(at, std::min(piece, rows - at)), 0};
    item.read = std::ssize(item.tokens);
    model.evaluate(
        {&item, 1}, [](size_t, int64_t, std::span<const float>) {},
        [&](size_t, int64_t, std::span<const float> stream) {
          const std::vector<float> joined = models.joined(stream);
          streams.insert(streams.end(), joined.begin(), joined.end());
        });
  }
  test::Rows all;
  const auto join = [&](std::span<const int32_t> tokens) {
    SequenceTokens item{0, tokens, std::ssize(tokens)};
    const std::vector<float> joined = std::exchange(streams, {});
    item.streams = joined;
    item.read = 1;
    layer.evaluate(
        {&item, 1},
        [&](size_t, int64_t, std::span<const float> logits) {
          all.emplace_back(logits.begin(), logits.end());
        },
        [&](size_t, int64_t, std::span<const float> stream) {
          streams = models.joined_again(stream);
        });
  };
  join(std::span(e.tokens).subspan(1));
  for (size_t i = 0; i + 1 < e.guesses.size(); ++i)
    join(std::span(e.guesses).subspan(i, 1));
  return all;
}

LoadOptions options_of(ThreadPool& pool) {
  LoadOptions options;
  options.pool = &pool;
  return options;
}

TEST(Ahead, LogitsEqualTheDefinition) {
  ThreadPool pool(test::kThreads);
  for (const char* name : kAheadModels) {
    CheckpointSource source = CheckpointSource::open(test::ahead_folder(name));
    const AheadModel models(source, options_of(pool));
    const Expected e = read_expected(name);
    for (const size_t piece : {size_t{100}, size_t{5}}) {
      const test::Rows rows = logits_of(models, e, piece);
      ASSERT_EQ(rows.size(), e.logits.size()) << name;
      for (size_t r = 0; r < rows.size(); ++r) {
        float most = 0, worst = 0;
        for (size_t i = 0; i < rows[r].size(); ++i) {
          most = std::max(most, std::abs(e.logits[r][i]));
          worst = std::max(worst, std::abs(rows[r][i] - e.logits[r][i]));
        }
        EXPECT_LT(worst, 1e-3f * most) << name << " row " << r;
      }
    }
  }
}

// Files and folders have the layer, coded as the others are, and give the logits of what is
// compressed while it is loaded.
TEST(Ahead, IsQuantizedWithTheRest) {
  ThreadPool pool(test::kThreads);
  const test::TemporaryFolder folder;
  for (const char* name : kAheadModels) {
    Recipe recipe;
    recipe.type = &get_format("tq4");
    const auto open = [&] { return open_compressor(test::ahead_folder(name), recipe, pool); };
    const Expected e = read_expected(name);
    const test::Rows loaded = logits_of(AheadModel(*open(), options_of(pool)), e, 100);
    for (const OutputKind kind : {OutputKind::file, OutputKind::folder}) {
      const std::string path =
          folder.path() + "/" + name + (kind == OutputKind::file ? ".gguf" : "");
      const auto compressor = open();
      OutputOptions options;
      options.kind = kind;
      quantize_to_file(*compressor, path, {}, {}, options);
      const auto stored = open_stored(path);
      const ModelConfig config = read_config(*stored);
      ASSERT_TRUE(config.ahead.present()) << name;
      for (const MatrixDesc& m : config.ahead.layer.front().matrices)
        EXPECT_EQ(stored->format_of(m.weight).dense, m.plain) << m.weight;
      EXPECT_EQ(logits_of(AheadModel(*stored, options_of(pool)), e, 100), loaded) << name;
    }
  }
}

// Checkpoints that transformers saved lack the layer. They are read as before, and so are models
// whose rotation is folded into the residual stream.
TEST(Ahead, IsNotNeeded) {
  ThreadPool pool(test::kThreads);
  const CheckpointSource without =
      CheckpointSource::open(test::tiny_model("deepseek-v3-free-tiny"));
  EXPECT_FALSE(read_config(without).ahead.present());
  Recipe recipe;
  recipe.type = &get_format("tq4");
  recipe.rotate = RotateAt::residual;
  const auto folded = open_compressor(test::ahead_folder("glm4-moe"), recipe, pool);
  const ModelConfig config = read_config(*folded);
  EXPECT_FALSE(config.ahead.present());
  EXPECT_FALSE(Model::load(*folded, config, options_of(pool)).joins());
}

TEST(Ahead, NeedsAStreamForEveryToken) {
  ThreadPool pool(test::kThreads);
  CheckpointSource source = CheckpointSource::open(test::ahead_folder("qwen35"));
  const AheadModel models(source, options_of(pool));
  Session session(models.layer, {16});
  const std::vector<int32_t> tokens = {3, 4};
  const std::vector<float> streams(static_cast<size_t>(models.model.config.hidden));
  SequenceTokens item{0, tokens};
  const auto evaluate = [&] {
    session.evaluate({&item, 1}, [](size_t, int64_t, std::span<const float>) {});
  };
  EXPECT_THROW(evaluate(), Error);
  item.streams = streams;
  EXPECT_THROW(evaluate(), Error);
  item.tokens = item.tokens.first(1);
  evaluate();
  EXPECT_EQ(session.position(), 1);
}

}  // namespace
}  // namespace walsh
