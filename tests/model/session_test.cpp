#include "model/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "model/synthetic.h"
#include "model_support.h"
#include "threads.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

std::vector<int32_t> tokens_of(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((i * 37 + i * i * 11) % 128));
  return tokens;
}

double worst_difference(const std::vector<std::vector<float>>& a,
                        const std::vector<std::vector<float>>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double difference = 0, scale = 0;
    for (size_t j = 0; j < a[i].size(); ++j) {
      difference = std::max<double>(difference, std::abs(a[i][j] - b[i][j]));
      scale = std::max<double>(scale, std::abs(b[i][j]));
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

class SessionTest : public testing::TestWithParam<const char*> {
 protected:
  ThreadPool pool_{test::kThreads};
  Model model_ = test::load_folder(test::tiny_model(GetParam()), pool_);
};

TEST_P(SessionTest, TokenByTokenEqualsThePromptAtOnce) {
  const auto tokens = tokens_of(61);
  Session session(model_, {128});
  const auto at_once = test::all_logits(session, tokens);
  ASSERT_EQ(at_once.size(), tokens.size());
  session.reset();
  std::vector<std::vector<float>> one_by_one;
  for (int32_t token : tokens)
    one_by_one.push_back(test::all_logits(session, {token}).at(0));
  EXPECT_LT(worst_difference(one_by_one, at_once), 1e-4);
  EXPECT_EQ(session.position(), 61);
}

TEST_P(SessionTest, LogitsFromFirstLogitOnAreTheSameAndInOrder) {
  const auto tokens = tokens_of(40);
  Session session(model_, {128});
  const auto all = test::all_logits(session, tokens);
  session.reset();
  std::vector<int64_t> indices;
  std::vector<std::vector<float>> some;
  session.forward(
      tokens,
      [&](int64_t index, std::span<const float> logits) {
        indices.push_back(index);
        some.emplace_back(logits.begin(), logits.end());
      },
      37);
  EXPECT_THAT(indices, testing::ElementsAre(37, 38, 39));
  EXPECT_LT(worst_difference(some, {all.begin() + 37, all.end()}), 1e-5);
}

TEST_P(SessionTest, TruncateContinuesFromAnEarlierToken) {
  const auto tokens = tokens_of(30);
  Session session(model_, {64});
  const auto expected = test::all_logits(session, tokens);
  session.truncate(12);
  const auto again = test::all_logits(session, {tokens.begin() + 12, tokens.end()});
  EXPECT_LT(worst_difference(again, {expected.begin() + 12, expected.end()}), 1e-4);
  EXPECT_THROW(session.truncate(31), Error);
  EXPECT_THROW(session.truncate(-1), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, SessionTest,
                         testing::Values("mistral-tiny", "qwen2-window-tiny", "qwen3-tiny",
                                         "gemma3-tiny", "gemma4-tiny", "olmo3-tiny",
                                         "ministral3-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class SmallSession : public testing::Test {
 protected:
  ThreadPool pool_{test::kThreads};
  Model model_ = test::load_folder(test::tiny_model("llama2-bias-tiny"), pool_);
};

TEST_F(SmallSession, BatchesLargerThanAChunkEqualSmallOnes) {
  model_.config.max_positions = 1024;
  const auto tokens = tokens_of(600);
  Session session(model_, {1024});
  const auto expected = test::all_logits(session, tokens);
  session.reset();
  std::vector<std::vector<float>> rows;
  for (size_t begin = 0; begin < tokens.size(); begin += 50) {
    const auto part =
        test::all_logits(session, {tokens.begin() + static_cast<int64_t>(begin),
                                   tokens.begin() + static_cast<int64_t>(begin) + 50});
    rows.insert(rows.end(), part.begin(), part.end());
  }
  EXPECT_LT(worst_difference(rows, expected), 1e-4);
}

TEST_F(SmallSession, NoTokensDoNothing) {
  Session session(model_, {8});
  EXPECT_TRUE(test::all_logits(session, {}).empty());
  session.submit({});  // a batch without sequences
  EXPECT_EQ(session.position(), 0);
}

TEST_F(SmallSession, RefusesForeignTokensAndOverflowWithoutAChange) {
  Session session(model_, {8});
  test::all_logits(session, {1, 2, 3});
  for (const std::vector<int32_t>& bad : {std::vector<int32_t>{5, 160}, {-1}, {1, 2, 3, 4, 5, 6}}) {
    try {
      test::all_logits(session, bad);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
    }
    EXPECT_EQ(session.position(), 3);
  }
  EXPECT_EQ(test::all_logits(session, {1, 2, 3, 4, 5}).size(), 5u) << "the last positions fit";
}

TEST_F(SmallSession, SequencesDecodedTogetherEqualEachAlone) {
  const std::vector<std::vector<int32_t>> texts = {{1, 2, 3}, {9}, {5, 4, 5, 4, 5, 4, 5}};
  const auto sequences = static_cast<int64_t>(texts.size());
  SessionOptions options;
  options.max_positions = 32;
  options.sequences = sequences;
  Session together(model_, options);
  for (int64_t s = 0; s < sequences; ++s) {
    if (s > 0) {
      EXPECT_EQ(together.open(), s);
    }
    together.forward(
        texts[static_cast<size_t>(s)], [](int64_t, std::span<const float>) {}, 0, s);
  }
  const std::vector<int32_t> next = {7, 8, 6};
  std::vector<std::vector<float>> rows;
  test::decode(together, next, [&](size_t item, int64_t index, std::span<const float> logits) {
    EXPECT_EQ(item, rows.size());
    EXPECT_EQ(index, 0);
    rows.emplace_back(logits.begin(), logits.end());
  });
  ASSERT_EQ(rows.size(), texts.size());
  for (size_t s = 0; s < texts.size(); ++s) {
    Session alone(model_, {32});
    std::vector<int32_t> tokens = texts[s];
    tokens.push_back(next[s]);
    EXPECT_EQ(rows[s], test::all_logits(alone, tokens).back()) << "sequence " << s;
    EXPECT_EQ(together.position(static_cast<int64_t>(s)), static_cast<int64_t>(tokens.size()));
  }
  EXPECT_THROW(test::decode(together, std::vector<int32_t>(4, 1),
                            [](size_t, int64_t, std::span<const float>) {}),
               Error);
  EXPECT_THROW(together.position(3), Error);
}

TEST_F(SmallSession, RefusesContextsBeyondTheModelOrTheMemoryLimit) {
  EXPECT_THROW(Session(model_, {257}), Error);
  EXPECT_THROW(Session(model_, {-1}), Error);
  EXPECT_EQ(Session(model_).capacity(), 256);
  try {
    Session(model_, {256, 1000});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_THAT(e.what(), testing::HasSubstr("256 positions"));
  }
}

TEST(ModelLoad, RefusesMorePositionsThanTheModelHasBeforeItReadsAnything) {
  ThreadPool pool(1);
  const Format& type = get_format("tq3");
  SyntheticSource source("tiny", {&type, &type, &type});
  const ModelConfig config = parse_config(source.config_json(), "test");
  LoadOptions options;
  options.pool = &pool;
  options.use.max_positions = config.max_positions + 1;
  size_t read = 0;
  options.progress = [&](size_t, size_t, const std::string&) { ++read; };
  try {
    Model::load(source, config, options);
    FAIL() << "loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_EQ(e.where(), "context");
  }
  EXPECT_EQ(read, 0u);
}

TEST(Synthetic, EndsWhenTheCallerAsks) {
  const Format& dense = get_format("bf16");
  const Format& coded = get_format("tq3");
  SyntheticSource source("tiny", {&coded, &dense, &dense});
  const std::atomic<bool> flag = true;
  const StopScope scope(flag);
  EXPECT_THROW(source.load("model.embed_tokens.weight"), Error);
  EXPECT_THROW(source.load("model.layers.0.mlp.down_proj.weight"), Error);
}

// Returns the step of a kind that a layer has.
template <typename Kind>
Kind& step_of(Model& model, size_t layer) {
  for (Step& step : model.steps.layers[layer].steps)
    if (auto* found = std::get_if<Kind>(&step.op)) return *found;
  throw Error(ErrorCode::internal, "test", "no such step");
}

// The goldens would not notice if a feature were ignored: each must move the logits.
TEST(Features, EveryFeatureOfTheConfigShowsInTheLogits) {
  const auto changed = [](const char* name, auto&& change) {
    ThreadPool pool(1);
    Model model = test::load_folder(test::tiny_model(name), pool);
    const auto tokens = tokens_of(48);
    Session before(model, {64});
    const auto expected = test::all_logits(before, tokens);
    change(model);
    Session after(model, {64});
    return worst_difference(test::all_logits(after, tokens), expected);
  };
  EXPECT_GT(
      changed("mistral-tiny", [](Model& m) { step_of<step::Attend>(m, 1).options.window = 17; }),
      0.01);
  EXPECT_GT(changed("qwen2-window-tiny",
                    [](Model& m) { step_of<step::Attend>(m, 0).options.window = 11; }),
            0.01);
  EXPECT_GT(changed("llama31-tiny", [](Model& m) { m.config.ropes[0].factor = 1; }), 0.01);
  EXPECT_GT(changed("llama2-bias-tiny", [](Model& m) { m.config.ropes[0].factor = 1; }), 0.01);
  EXPECT_GT(changed("llama2-bias-tiny", [](Model& m) { m.layers[0].matrices[3].bias.clear(); }),
            0.01);
  EXPECT_GT(changed("llama2-bias-tiny", [](Model& m) { m.layers[0].matrices[6].bias.clear(); }),
            0.01);
  EXPECT_GT(changed("qwen2-tiny", [](Model& m) { m.layers[2].matrices[1].bias.clear(); }), 0.001);
  EXPECT_GT(
      changed("qwen3-tiny", [](Model& m) { step_of<step::PrepareHeads>(m, 0).query_norm = {}; }),
      0.01);
}

}  // namespace
}  // namespace walsh
