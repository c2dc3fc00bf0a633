// Tests recurrent layers and experts on a GPU: texts divided at arbitrary positions, snapshots,
// ragged batches, and replayed steps.
#include <gtest/gtest.h>

#include <algorithm>

#include "../ragged.h"
#include "gpu_models.h"
#include "model/session.h"
#include "model/synthetic.h"
#include "short_run.h"

namespace walsh {
namespace {

// This tolerance is for another order of additions and other kernels.
constexpr double kRounding = 5e-3;
// This tolerance is for a row whose scores are nearly equal, which can get another expert.
constexpr double kOtherExperts = 5e-2;

class GpuStates : public test::GpuTest, public testing::WithParamInterface<const char*> {
 protected:
  Model open() {
    CheckpointSource source = CheckpointSource::open(test::tiny_model(GetParam()));
    return load(source, gpu_);
  }
  static void expect_equal(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_LT(test::divergence({b}, {a}), kRounding);
  }
};

TEST_P(GpuStates, ATextGivesTheSameHoweverItIsCut) {
  const Model model = open();
  const auto text = test::random_tokens(200, model.config.vocab, 1);
  Session alone(model, {250});
  const auto whole = behind(alone, text);
  for (const size_t piece : {1, 2, 31, 32, 33, 100}) {
    SCOPED_TRACE(piece);
    Session session(model, {250});
    std::vector<float> last;
    for (size_t i = 0; i < text.size(); i += piece)
      last = behind(session, std::span(text).subspan(i, std::min(piece, text.size() - i)));
    expect_equal(last, whole);
  }
}

// Snapshots are in the middle of a prompt, at its end, and of a single token.
TEST_P(GpuStates, GoesBackToASnapshot) {
  const Model model = open();
  if (!is_recurrent(model.config)) GTEST_SKIP() << "keys and values are taken back by position";
  const auto text = test::random_tokens(120, model.config.vocab, 2);
  const auto other = test::random_tokens(9, model.config.vocab, 3);
  for (const int64_t at : {1, 50, 64, 120}) {
    SCOPED_TRACE(at);
    SessionOptions options{250};
    options.snapshots = 2;
    Session session(model, options);
    behind(session, text, at);
    behind(session, other);
    session.truncate(at);
    ASSERT_EQ(session.position(), at);
    auto expected = std::vector(text.begin(), text.begin() + at);
    expected.insert(expected.end(), other.begin(), other.end());
    Session alone(model, {250});
    expect_equal(behind(session, other), behind(alone, expected));
  }
  SessionOptions options{250};
  options.snapshots = 1;
  Session session(model, options);
  behind(session, text);
  behind(session, std::span(other).first(1), 1);
  behind(session, std::span(other).subspan(1));
  session.truncate(121);
  ASSERT_EQ(session.position(), 121);
  auto expected = text;
  expected.push_back(other[0]);
  expected.insert(expected.end(), other.begin(), other.end());
  Session alone(model, {250});
  expect_equal(behind(session, other), behind(alone, expected));
}

TEST_P(GpuStates, RaggedBatchesGiveEverySequenceWhatItGetsAlone) {
  const Model model = open();
  SessionOptions options;
  options.max_positions = 250;
  options.sequences = 5;
  options.snapshots = 6;
  test::RaggedBatches batches(model, options, 4);
  batches.run(test::times(40, 10));
  for (const auto& result : batches.results()) {
    const auto expected = test::RaggedBatches::alone(model, 250, result.history);
    expect_equal(result.logits, expected);
  }
}

// The first batch of a shape is launched, the second one recorded, later ones are replayed.
TEST_P(GpuStates, ReplayedStepsGiveWhatLaunchedOnesGive) {
  const Model model = open();
  const auto text = test::random_tokens(40, model.config.vocab, 5);
  SessionOptions options{100};
  Session session(model, options);
  std::vector<float> last;
  for (const int32_t token : text)
    last = behind(session, {&token, 1});
  Session prompt(model, {100});
  expect_equal(last, behind(prompt, text));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuStates,
                         testing::Values("qwen35-tiny", "qwen35-wide-tiny", "qwen3-moe-tiny",
                                         "lfm2-bias-tiny", "lfm2-moe-tiny",
                                         "granite-hybrid-tiny", "granite-hybrid-wide-tiny"));

class GpuExpertModels : public test::GpuTest, public testing::WithParamInterface<const char*> {};

// Inputs are one row, few rows, and prompts, by tiles where the format has them.
TEST_P(GpuExpertModels, AreAsOnTheCpu) {
  const Format &type = get_format(GetParam()), &ends = get_format("f16");
  SyntheticSource source("tiny-moe", {&type, &ends, &ends});
  const Model on_gpu = load(source, gpu_), on_cpu = load(source, Device{});
  for (const int64_t length : {3, 20, 200}) {
    SCOPED_TRACE(length);
    const auto text = test::random_tokens(length, on_cpu.config.vocab, 6);
    const auto expected = test::logits_of(on_cpu, text);
    EXPECT_LT(test::divergence(expected, test::logits_of(on_gpu, text)), kOtherExperts);
    if (length < 100) {
      // There is one launch for each token where the format allows it.
      const auto rows = test::decode(on_gpu, text);
      EXPECT_LT(test::divergence(expected, rows), kOtherExperts);
      EXPECT_EQ(rows, test::decode(on_gpu, text));
    }
  }
}

TEST_P(GpuExpertModels, TakeThePlannedMemory) {
  const Format &type = get_format(GetParam()), &ends = get_format("f16");
  SyntheticSource source("tiny-moe", {&type, &ends, &ends});
  expect_planned_memory(source, "f16");
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuExpertModels,
                         testing::Values("f16", "tq2", "tq3", "tq4", "tq4+4", "q8_0", "q4_0",
                                         "itq3_s8", "pq3", "tc3:h"));

}  // namespace
}  // namespace walsh
