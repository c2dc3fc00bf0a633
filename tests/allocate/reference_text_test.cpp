#include "allocate/reference_text.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "eval/evaluator.h"
#include "model/synthetic.h"
#include "threads.h"

namespace walsh {
namespace {

class ReferenceTextTest : public testing::Test {
 protected:
  static constexpr int32_t kVocab = 50;  // texts are made of so many tokens

  Model model(const char* type, ThreadPool& pool) const {
    const Format& format = get_format(type);
    SyntheticSource source("tiny", {&format, &format, &format}, 42);
    LoadOptions options;
    options.pool = &pool;
    return Model::load(source, parse_config(source.config_json(), "tiny"), options);
  }
  static std::vector<int32_t> text() {
    Random random(5);
    std::vector<int32_t> ids;
    for (int i = 0; i < 64; ++i)
      ids.push_back(static_cast<int32_t>(random.below(kVocab)));
    return ids;
  }
  static LayerStream stream(const Model& model) {
    std::vector<std::vector<int32_t>> windows(2);
    const std::vector<int32_t> ids = text();
    for (size_t i = 0; i < ids.size(); ++i)
      windows[i / 32].push_back(i % 32 == 0 ? 1 : ids[i]);
    LayerStream stream(model, std::move(windows));
    for (size_t layer = 0; layer < model.layers.size(); ++layer)
      stream.run_layer();
    return stream;
  }
  static Estimate divergence(const Model& reference, const Model& other, uint64_t max_bytes) {
    LayerStream first = stream(reference), second = stream(other);
    return ReferenceText(first, max_bytes).divergence(second);
  }

  ThreadPool pool_{test::kThreads};
};

TEST_F(ReferenceTextTest, AgreesWithTheEvaluator) {
  const Model reference = model("tq4", pool_), other = model("tq3", pool_);
  EvalOptions eval;
  eval.windows = {WindowRule::full, 32, 0, 2};
  eval.bos = 1;
  const Evaluation expected = evaluate(other, &reference, text(), eval);
  LayerStream first = stream(reference), second = stream(other);
  const ReferenceText kept(first);
  const Estimate found = kept.divergence(second);
  EXPECT_EQ(kept.tokens(), expected.divergence->count());
  EXPECT_EQ(kept.kept(), reference.config.vocab);
  EXPECT_NEAR(found.value, expected.divergence->kld().value, 1e-6 * found.value + 1e-9);
  EXPECT_NEAR(found.error, expected.divergence->kld().error, 1e-4 * found.error);
}

TEST_F(ReferenceTextTest, AModelDoesNotDivergeFromItself) {
  const Model reference = model("tq4", pool_);
  EXPECT_EQ(divergence(reference, reference, ReferenceText::kMaxBytes).value, 0);
  EXPECT_EQ(divergence(reference, reference, 62 * 8 * 10).value, 0);
}

TEST_F(ReferenceTextTest, FewKeptTokensUnderstateAndNeverOverstate) {
  const Model reference = model("tq4", pool_), other = model("tq3", pool_);
  const double exact = divergence(reference, other, ReferenceText::kMaxBytes).value;
  double before = 0;
  for (const uint64_t tokens : {1u, 8u, 64u}) {
    LayerStream first = stream(reference), second = stream(other);
    const ReferenceText kept(first, 62 * 8 * tokens);
    EXPECT_EQ(kept.kept(), static_cast<int64_t>(tokens));
    const double found = kept.divergence(second).value;
    EXPECT_GE(found, before);
    EXPECT_LE(found, exact * (1 + 1e-6));
    before = found;
  }
  EXPECT_GT(before, exact / 10);
}

TEST_F(ReferenceTextTest, TheNumberOfThreadsChangesNothing) {
  ThreadPool three(3);
  EXPECT_EQ(divergence(model("tq4", pool_), model("tq3", pool_), ReferenceText::kMaxBytes).value,
            divergence(model("tq4", three), model("tq3", three), ReferenceText::kMaxBytes).value);
}

}  // namespace
}  // namespace walsh
