#include "eval/evaluator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "eval/token_score.h"
#include "model/session.h"
#include "model/synthetic.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

class EvaluatorTest : public testing::Test {
 protected:
  Model model(const char* type, ThreadPool& pool, uint32_t seed = 42) const {
    const Format& format = get_format(type);
    SyntheticSource source("tiny", {&format, &format, &format}, seed);
    LoadOptions options;
    options.pool = &pool;
    return Model::load(source, parse_config(source.config_json(), "tiny"), options);
  }
  std::vector<int32_t> text(const Model& m, int64_t tokens) const {
    Random random(5);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i)
      ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(m.config.vocab))));
    return ids;
  }
  static EvalOptions options(int64_t ctx) {
    EvalOptions o;
    o.windows.ctx = ctx;
    o.bos = 1;
    return o;
  }

  ThreadPool pool_{test::kThreads};
};

TEST_F(EvaluatorTest, EqualsTheSumOverWindowsWrittenOut) {
  const Model m = model("f32", pool_);
  const std::vector<int32_t> ids = text(m, 70);
  const Evaluation result = evaluate(m, nullptr, ids, options(32));
  EXPECT_EQ(result.windows, 2);
  EXPECT_EQ(result.perplexity.count(), 32);
  EXPECT_FALSE(result.divergence.has_value());

  double sum = 0;
  for (int window = 0; window < 2; ++window) {
    std::vector<int32_t> tokens(ids.begin() + 32 * window, ids.begin() + 32 * (window + 1));
    tokens[0] = 1;
    Session session(m, {.max_positions = 32});
    session.forward(tokens, [&](int64_t i, std::span<const float> logits) {
      if (i >= 15 && i < 31) sum += token_nll(logits, tokens[static_cast<size_t>(i + 1)]);
    });
  }
  EXPECT_NEAR(result.perplexity.mean_nll().value, sum / 32, 1e-6);
}

TEST_F(EvaluatorTest, AModelDoesNotDivergeFromItself) {
  const Model m = model("tq3", pool_);
  const Evaluation result = evaluate(m, &m, text(m, 64), options(32));
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_EQ(result.divergence->kld().value, 0);
  EXPECT_EQ(result.divergence->kld_values().max(), 0);
  EXPECT_EQ(result.divergence->same_top().value, 1);
}

TEST_F(EvaluatorTest, OtherWeightsDiverge) {
  const Model m = model("tq3", pool_), other = model("tq3", pool_, 7);
  const Evaluation result = evaluate(m, &other, text(m, 64), options(32));
  EXPECT_GT(result.divergence->kld().value, 1e-6);
  EXPECT_GT(result.divergence->kld_values().min(), 0);
}

TEST_F(EvaluatorTest, TheNumberOfThreadsChangesNothing) {
  ThreadPool three(3);
  const Model a = model("tq4", pool_), b = model("tq4", three);
  const std::vector<int32_t> ids = text(a, 96);
  EXPECT_EQ(evaluate(a, nullptr, ids, options(32)).perplexity.perplexity().value,
            evaluate(b, nullptr, ids, options(32)).perplexity.perplexity().value);
}

TEST_F(EvaluatorTest, ProgressSeesEveryWindowAndMayStop) {
  const Model m = model("tq4", pool_);
  EvalOptions o = options(16);
  std::vector<int64_t> seen;
  o.progress = [&](const Evaluation& result, int64_t windows) {
    EXPECT_EQ(windows, 4);
    seen.push_back(result.windows);
    if (seen.size() == 3) throw Error(ErrorCode::interrupted, "test", "enough");
  };
  EXPECT_THROW(evaluate(m, nullptr, text(m, 64), o), Error);
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(EvaluatorTest, RefusesATextThatIsTooShort) {
  const Model m = model("tq4", pool_);
  EXPECT_THROW(evaluate(m, nullptr, text(m, 31), options(32)), Error);
}

}  // namespace
}  // namespace walsh
