// Tests models that decode one or a few sequences with the persistent kernel: that they do, and
// that the results equal those of single launches and of the CPU.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "gpu_models.h"
#include "model/cuda/executor.h"
#include "model/session.h"
#include "short_run.h"

namespace walsh {
namespace {

// A row whose scores are nearly equal can get another expert; roundings of int8 inputs differ.
constexpr double kRounding = 5e-2;

class GpuOneLaunch : public test::GpuTest {
 protected:
  static SyntheticSource source(const char* shape, const char* type) {
    const Format& ends = get_format("f16");
    return SyntheticSource(shape, {&get_format(type), &ends, &ends});
  }
  static SyntheticSource source(const char* shape, const std::vector<std::string>& types) {
    SyntheticTypes all{&get_format(types[0]), &get_format("f16"), &get_format("f16"), {}};
    for (size_t i = 1; i < types.size(); ++i)
      all.others.push_back(&get_format(types[i]));
    return SyntheticSource(shape, all);
  }
  Model open(const char* shape, const char* type, const Device& device,
             const CacheTypes& cache = {}) {
    SyntheticSource of = source(shape, type);
    return load(of, device, ActivationMode::automatic, cache);
  }
  static std::vector<float> behind_tokens(Session& session, std::span<const int32_t> text) {
    std::vector<float> last;
    for (const int32_t& token : text)
      last = behind(session, {&token, 1});
    return last;
  }
  static bool is_one_launch(const Model& model, int64_t sequences = 1) {
    SessionOptions options{128};
    options.sequences = sequences;
    const KvPages pages(kv_shape(model.config, model.cache, kGpuPagePositions, options));
    return CudaExecutor(model, pages, 0).steps_are_one_launch(sequences);
  }
  bool is_one_launch(SyntheticSource of) { return is_one_launch(load(of, gpu_)); }

  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !cuda::PersistentProgram::available())
      GTEST_SKIP() << "no GPU that runs the persistent kernel";
  }
};

TEST_F(GpuOneLaunch, HasEveryKindOfLayer) {
  for (const char* shape : {"tiny", "tiny-moe", "tiny-delta", "tiny-next"}) {
    for (const char* type : {"tq2", "tq3", "tq4"})
      EXPECT_TRUE(is_one_launch(source(shape, type))) << shape << " " << type;
    EXPECT_TRUE(is_one_launch(source(shape, {"tq4", "tq3", "tq2"})))
        << shape << " of several codes";
  }
  for (const char* type : {"itq3_s", "itq3_s8", "q4_0"})
    EXPECT_TRUE(is_one_launch(source("tiny", type))) << type;
}

// These are left to launches, so that the test above can fail.
TEST_F(GpuOneLaunch, HasNotWhatNoProgramIsFor) {
  EXPECT_FALSE(is_one_launch(source("tiny-latent", "tq3")));
  EXPECT_FALSE(is_one_launch(source("tiny", "q8_0")));  // two planes of inputs
  EXPECT_FALSE(is_one_launch(source("tiny-delta", "q8_0")));
  EXPECT_FALSE(is_one_launch(source("tiny", "pq3")));
  const CacheTypes codes{&get_cache_type("tq3_0"), &get_cache_type("tq3_0"), 32};
  const CacheTypes keys{&get_cache_type("tq3_0"), &get_cache_type("f16"), 32};
  EXPECT_FALSE(is_one_launch(open("tiny", "tq3", gpu_, keys)));
  EXPECT_FALSE(is_one_launch(open("tiny-delta", "tq3", gpu_, codes)));
}

class GpuRowsInOneLaunch : public GpuOneLaunch, public testing::WithParamInterface<const char*> {
 protected:
  // The head is coded as well, and another launch.
  Model open() {
    const Format& ends = get_format("tq4");
    SyntheticSource of("tiny", {&get_format(GetParam()), &ends, &ends});
    return load(of, gpu_);
  }
  // Returns logits of the last of some tokens of every sequence, which are behind texts of several
  // lengths.
  static std::vector<std::vector<float>> together(const Model& model,
                                                  const std::vector<std::vector<int32_t>>& texts,
                                                  size_t tokens) {
    SessionOptions options{400};
    options.sequences = static_cast<int64_t>(texts.size());
    Session session(model, options);
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && session.open() != static_cast<int64_t>(i)) ADD_FAILURE() << "sequence " << i;
      behind(session, std::span(texts[i]).first(texts[i].size() - tokens), -1,
             static_cast<int64_t>(i));
    }
    std::vector<std::vector<float>> last(texts.size());
    for (size_t token = tokens; token > 0; --token) {
      std::vector<SequenceTokens> items;
      for (size_t i = 0; i < texts.size(); ++i)
        items.push_back(
            {static_cast<int64_t>(i), std::span(texts[i]).subspan(texts[i].size() - token, 1), 1});
      session.evaluate(items, [&](size_t item, int64_t, std::span<const float> logits) {
        last[item].assign(logits.begin(), logits.end());
      });
    }
    return last;
  }
};

TEST_P(GpuRowsInOneLaunch, AreThoseOfEachSequenceAlone) {
  constexpr size_t kTokens = 8;
  const Model model = open();
  for (const size_t count : {2, 3, 4}) {
    SCOPED_TRACE(count);
    ASSERT_TRUE(is_one_launch(model, static_cast<int64_t>(count)));
    std::vector<std::vector<int32_t>> texts;
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < count; ++i) {  // positions within a page, behind it, and of two parts
      const size_t length = std::vector<size_t>{320, 12, 90, 66}[i];
      texts.push_back(test::random_tokens(static_cast<int64_t>(length), model.config.vocab, 6 + i));
      Session alone(model, {400});
      const std::span all(texts.back());
      behind(alone, all.first(length - kTokens));
      expected.push_back(behind_tokens(alone, all.last(kTokens)));
    }
    const auto got = together(model, texts, kTokens);
    for (size_t i = 0; i < count; ++i) {
      const double own = test::divergence({expected[i]}, {got[i]});
      EXPECT_LT(own, 2e-3) << i;
      EXPECT_GT(test::divergence({expected[i]}, {got[(i + 1) % count]}), 10 * own) << i;
    }
    EXPECT_EQ(got, together(model, texts, kTokens));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GpuRowsInOneLaunch, testing::Values("tq2", "tq3", "tq4", "itq3_s"));

TEST_F(GpuOneLaunch, HasSeveralRowsOfOneCoarseScalarCodeOnly) {
  const auto says = [&](SyntheticSource of) { return is_one_launch(load(of, gpu_), 2); };
  EXPECT_TRUE(says(source("tiny", "tq3")));
  EXPECT_FALSE(says(source("tiny", "q4_0")));
  EXPECT_FALSE(says(source("tiny", {"tq4", "tq3"})));
  EXPECT_FALSE(says(source("tiny-moe", "tq3")));
  EXPECT_FALSE(says(source("tiny-delta", "tq3")));
  Model model = open("tiny", "tq3", gpu_);
  EXPECT_FALSE(is_one_launch(model, 5));
}

using ShapeAndType = std::tuple<const char*, const char*>;

class GpuHybridSteps : public GpuOneLaunch, public testing::WithParamInterface<ShapeAndType> {
 protected:
  Model open(const Device& device) {
    return GpuOneLaunch::open(std::get<0>(GetParam()), std::get<1>(GetParam()), device);
  }
  static void expect_equal(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_LT(test::divergence({b}, {a}), kRounding);
  }
};

TEST_P(GpuHybridSteps, AreAsOnTheCpuEveryTime) {
  const Model on_gpu = open(gpu_), on_cpu = open(Device{});
  ASSERT_TRUE(is_one_launch(on_gpu));
  const auto text = test::random_tokens(70, on_cpu.config.vocab, 6);
  const auto rows = test::decode(on_gpu, text);
  EXPECT_LT(test::divergence(test::logits_of(on_cpu, text), rows), kRounding);
  EXPECT_EQ(rows, test::decode(on_gpu, text));
}

// A prompt by launches, tokens by the program, both sequences at once by launches, tokens again.
TEST_P(GpuHybridSteps, MixWithLaunchesInEveryOrder) {
  const Model model = open(gpu_);
  const auto text = test::random_tokens(40, model.config.vocab, 7);
  const auto other = test::random_tokens(20, model.config.vocab, 8);
  const std::span all(text), others(other);
  SessionOptions options{100};
  options.sequences = 2;
  Session session(model, options);
  behind(session, all.first(20));
  behind_tokens(session, all.subspan(20, 5));
  ASSERT_EQ(session.open(), 1);
  behind(session, others.first(10), -1, 1);
  for (size_t i = 0; i < 5; ++i) {
    const SequenceTokens items[] = {{0, all.subspan(25 + i, 1), 1},
                                    {1, others.subspan(10 + i, 1), 1}};
    session.evaluate(items, [](size_t, int64_t, std::span<const float>) {});
  }
  std::vector<float> last, last_of_other;
  for (size_t i = 0; i < 5; ++i) {  // a sequence after the other, by the program
    last = behind(session, all.subspan(30 + i, 1));
    last_of_other = behind(session, others.subspan(15 + i, 1), -1, 1);
  }
  last = behind_tokens(session, all.subspan(35));
  Session alone(model, {100}), alone_other(model, {100});
  expect_equal(last, behind(alone, all));
  expect_equal(last_of_other, behind(alone_other, others));
}

// Snapshots are behind single tokens, which the program computes.
TEST_P(GpuHybridSteps, GoBackToASnapshotOfASingleToken) {
  const Model model = open(gpu_);
  const auto text = test::random_tokens(30, model.config.vocab, 9);
  const auto other = test::random_tokens(6, model.config.vocab, 10);
  SessionOptions options{100};
  options.snapshots = 1;
  Session session(model, options);
  const std::span all(text);
  behind_tokens(session, all.first(29));
  behind(session, all.last(1), 1);
  behind_tokens(session, other);
  session.truncate(30);
  ASSERT_EQ(session.position(), 30);
  std::vector<int32_t> expected = text;
  expected.insert(expected.end(), other.begin(), other.end());
  Session alone(model, {100});
  expect_equal(behind_tokens(session, other), behind(alone, expected));
}

INSTANTIATE_TEST_SUITE_P(Models, GpuHybridSteps,
                         testing::Combine(testing::Values("tiny-delta", "tiny-next"),
                                          testing::Values("tq2", "tq3", "tq4")));

struct CodedSteps {
  const char* cache;
  int64_t window;
};

class GpuCodedSteps : public GpuOneLaunch, public testing::WithParamInterface<CodedSteps> {
 protected:
  Model open(const Device& device, const char* shape = "tiny") {
    const CacheType& type = get_cache_type(GetParam().cache);
    return GpuOneLaunch::open(shape, "tq4", device, {&type, &type, GetParam().window});
  }
};

// What differs from the CPU is little beside what the codes cost, and beside what rounded inputs of
// products make without codes.
TEST_P(GpuCodedSteps, AreAsOnTheCpuEveryTime) {
  const Model on_gpu = open(gpu_), on_cpu = open(Device{});
  ASSERT_TRUE(is_one_launch(on_gpu));
  const Model half_gpu = GpuOneLaunch::open("tiny", "tq4", gpu_),
              half_cpu = GpuOneLaunch::open("tiny", "tq4", Device{});
  const auto text = test::random_tokens(test::times(330, 100), on_cpu.config.vocab, 6);
  const auto rows = test::decode(on_gpu, text);
  const auto half = test::logits_of(half_cpu, text), expected = test::logits_of(on_cpu, text);
  const double lost = test::divergence(half, expected);
  const double rounded = test::divergence(half, test::decode(half_gpu, text));
  EXPECT_LT(test::divergence(expected, rows), 3 * rounded + 0.1 * lost) << lost << ' ' << rounded;
  EXPECT_EQ(rows, test::decode(on_gpu, text));
}

// This is the same with models with experts: those that a row gets may be others.
TEST_P(GpuCodedSteps, OfExpertsAreAsOnTheCpu) {
  const Model on_gpu = open(gpu_, "tiny-moe"), on_cpu = open(Device{}, "tiny-moe");
  ASSERT_TRUE(is_one_launch(on_gpu));
  const auto text = test::random_tokens(test::times(150, 80), on_cpu.config.vocab, 6);
  EXPECT_LT(test::divergence(test::logits_of(on_cpu, text), test::decode(on_gpu, text)), kRounding);
}

// Prompts and two sequences at once take launches, single tokens the program; texts are cut and
// go on.
TEST_P(GpuCodedSteps, MixWithLaunchesInEveryOrder) {
  const Model model = open(gpu_);
  const auto text = test::random_tokens(240, model.config.vocab, 7);
  const auto other = test::random_tokens(90, model.config.vocab, 8);
  const std::span all(text), others(other);
  SessionOptions options{256};
  options.sequences = 2;
  Session session(model, options);
  behind(session, all.first(60));
  behind_tokens(session, all.subspan(60, 45));
  ASSERT_EQ(session.open(), 1);
  behind(session, others.first(40), -1, 1);
  for (size_t i = 0; i < 40; ++i) {
    const SequenceTokens items[] = {{0, all.subspan(105 + i, 1), 1},
                                    {1, others.subspan(40 + i, 1), 1}};
    session.evaluate(items, [](size_t, int64_t, std::span<const float>) {});
  }
  std::vector<float> last, last_of_other;
  for (size_t i = 0; i < 10; ++i) {
    behind(session, all.subspan(145 + i, 1));
    last_of_other = behind(session, others.subspan(80 + i, 1), -1, 1);
  }
  behind(session, all.subspan(155, 33));
  session.truncate(187);
  last = behind_tokens(session, all.subspan(187));
  Session alone(model, {256}), alone_other(model, {256});
  const double bound = 1e-2;  // a value near a threshold may get another code
  EXPECT_LT(test::divergence({behind(alone, all)}, {last}), bound);
  EXPECT_LT(test::divergence({behind(alone_other, others)}, {last_of_other}), bound);
}

INSTANTIATE_TEST_SUITE_P(Caches, GpuCodedSteps,
                         testing::Values(CodedSteps{"tq3_0", 32}, CodedSteps{"tq3_0", 0},
                                         CodedSteps{"q8_0", 32}, CodedSteps{"q4_0", 7},
                                         CodedSteps{"kt4", 32}, CodedSteps{"kt2", 100}));

}  // namespace
}  // namespace walsh
