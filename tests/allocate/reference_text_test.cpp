#include "allocate/reference_text.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "eval/evaluator.h"
#include "model/synthetic.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

class ReferenceTextTest : public testing::Test {
 protected:
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
    for (int i = 0; i < 100; ++i)
      ids.push_back(static_cast<int32_t>(random.below(50)));
    return ids;
  }

  ThreadPool pool_{test::kThreads};
  ReferenceTextOptions options_{.ctx = 32, .windows = 2, .bos = 1};
};

TEST_F(ReferenceTextTest, AgreesWithTheEvaluator) {
  const Model reference = model("tq4", pool_), other = model("tq3", pool_);
  EvalOptions eval;
  eval.windows = {WindowRule::full, 32, 0, 2};
  eval.bos = 1;
  const Evaluation expected = evaluate(other, &reference, text(), eval);
  const ReferenceText kept(reference, text(), options_);
  const Estimate found = kept.divergence(other);
  EXPECT_EQ(kept.tokens(), expected.divergence->count());
  EXPECT_EQ(kept.kept(), reference.config.vocab);
  EXPECT_NEAR(found.value, expected.divergence->kld().value, 1e-6 * found.value + 1e-9);
  EXPECT_NEAR(found.error, expected.divergence->kld().error, 1e-4 * found.error);
}

TEST_F(ReferenceTextTest, AModelDoesNotDivergeFromItself) {
  const Model reference = model("tq4", pool_);
  EXPECT_EQ(ReferenceText(reference, text(), options_).divergence(reference).value, 0);
  options_.max_bytes = 62 * 8 * 10;
  EXPECT_EQ(ReferenceText(reference, text(), options_).divergence(reference).value, 0);
}

TEST_F(ReferenceTextTest, FewKeptTokensUnderstateAndNeverOverstate) {
  const Model reference = model("tq4", pool_), other = model("tq3", pool_);
  const double exact = ReferenceText(reference, text(), options_).divergence(other).value;
  double before = 0;
  for (const uint64_t tokens : {1u, 8u, 64u}) {
    options_.max_bytes = 62 * 8 * tokens;
    const ReferenceText kept(reference, text(), options_);
    EXPECT_EQ(kept.kept(), static_cast<int64_t>(tokens));
    const double found = kept.divergence(other).value;
    EXPECT_GE(found, before);
    EXPECT_LE(found, exact * (1 + 1e-6));
    before = found;
  }
  EXPECT_GT(before, exact / 10);
}

TEST_F(ReferenceTextTest, TheNumberOfThreadsChangesNothing) {
  ThreadPool three(3);
  EXPECT_EQ(
      ReferenceText(model("tq4", pool_), text(), options_).divergence(model("tq3", pool_)).value,
      ReferenceText(model("tq4", three), text(), options_).divergence(model("tq3", three)).value);
}

TEST_F(ReferenceTextTest, EveryWindowIsAnnouncedAndMayStop) {
  const Model reference = model("tq4", pool_);
  const ReferenceText kept(reference, text(), options_);
  int windows = 0;
  kept.divergence(reference, [&] { ++windows; });
  EXPECT_EQ(windows, 2);
  EXPECT_THROW(kept.divergence(reference, [] { throw Error(ErrorCode::interrupted, "t", "stop"); }),
               Error);
}

TEST_F(ReferenceTextTest, RefusesATextThatIsTooShort) {
  EXPECT_THROW(ReferenceText(model("tq4", pool_), std::vector<int32_t>(31), options_), Error);
}

}  // namespace
}  // namespace walsh
