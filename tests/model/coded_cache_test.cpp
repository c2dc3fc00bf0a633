// Tests sessions with coded caches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "cache/cache_type.h"
#include "model/cpu/executor.h"
#include "model/session.h"
#include "model/synthetic.h"
#include "model_support.h"
#include "threads.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

using test::divergence;
using test::random_tokens;
using test::Rows;

constexpr uint64_t kSeed = 7;

Rows evaluate(Session& session, const std::vector<int32_t>& tokens, int64_t begin, int64_t end) {
  return test::all_logits(session, {tokens.begin() + begin, tokens.begin() + end});
}

class CodedCaches : public testing::Test {
 protected:
  Model load(WeightSource& source, const char* keys, const char* values, int64_t window,
             ActivationMode activations = ActivationMode::automatic) {
    LoadOptions options;
    options.pool = &pool_;
    options.activations = activations;
    options.cache = {&get_cache_type(keys), &get_cache_type(values), window};
    return Model::load(source, parse_config(source.config_json(), source.path()), options);
  }

  Model load_folder(const std::string& name, const char* type, int64_t window) {
    CheckpointSource source = CheckpointSource::open(test::model_folder(name));
    return load(source, type, type, window);
  }

  ThreadPool pool_{test::kThreads};
  SyntheticSource source_{"tiny", {&get_format("tq3"), &get_format("f16"), &get_format("f16")}};
  std::vector<int32_t> tokens_ = random_tokens(700, 500, kSeed);
};

struct Kept {
  const char *keys, *values;
  int64_t window;
};

class KeptSoMuch : public CodedCaches, public testing::WithParamInterface<Kept> {};

TEST_P(KeptSoMuch, ThePartsOfATextDoNotMatter) {
  const Model model = load(source_, GetParam().keys, GetParam().values, GetParam().window);
  Session session(model, {700});
  const Rows whole = evaluate(session, tokens_, 0, 700);
  for (const int64_t part : {1, 7, 33, 130, 699}) {
    session.reset();
    Rows rows;
    const int64_t count = part == 1 ? 330 : 700;
    for (int64_t begin = 0; begin < count; begin += part) {
      for (auto& row : evaluate(session, tokens_, begin, std::min(count, begin + part)))
        rows.push_back(std::move(row));
    }
    EXPECT_EQ(rows, Rows(whole.begin(), whole.begin() + count)) << "parts of " << part;
  }
}

TEST_P(KeptSoMuch, SequencesDecodedTogetherEqualEachAlone) {
  const Model model = load(source_, GetParam().keys, GetParam().values, GetParam().window);
  // There are enough steps to store units while decoding.
  const auto [texts, rows] = test::decode_together(model, tokens_, 70);
  for (size_t s = 0; s < texts.size(); ++s) {
    Session alone(model, {400});
    EXPECT_EQ(rows[s], test::all_logits(alone, texts[s]).back()) << "sequence " << s;
  }
}

TEST_P(KeptSoMuch, TokensThatMayBeWrongLeaveNoTrace) {
  const Model model = load(source_, GetParam().keys, GetParam().values, GetParam().window);
  Session session(model, {300});
  const Rows expected = evaluate(session, tokens_, 0, 150);
  session.reset();
  int64_t all = 0;
  for (int64_t done = 0; done < 150; ++done) {
    const int64_t most = session.revocable(0);
    std::vector<int32_t> run(static_cast<size_t>(1 + most), 3);
    run[0] = tokens_[static_cast<size_t>(done)];
    EXPECT_EQ(test::all_logits(session, run)[0], expected[static_cast<size_t>(done)]) << done;
    session.truncate(done + 1);
    all += most;
  }
  EXPECT_GT(all, 150 * 14) << "31 to none of a bundle";
}

INSTANTIATE_TEST_SUITE_P(Types, KeptSoMuch,
                         testing::Values(Kept{"tq3_0", "tq3_0", 32}, Kept{"tq3_0", "tq3_0", 0},
                                         Kept{"kt4", "q8_0", 7}, Kept{"f16", "kt3", 40},
                                         Kept{"q4_0", "f16", 0}));

TEST_F(CodedCaches, MoreBitsComeNearerToHalfFloats) {
  const auto tokens = random_tokens(400, 4000, kSeed);
  const std::string name = "walsh-tiny-13m";
  const auto logits = [&](const char* type, int64_t window) {
    const Model model = load_folder(name, type, window);
    Session session(model, {400});
    return test::all_logits(session, tokens);
  };
  const Rows expected = logits("f16", 32);
  double before = 0;
  for (const char* type : {"q8_0", "kt4", "tq3_0", "kt3", "kt2"}) {
    const double kld = divergence(expected, logits(type, 0));
    EXPECT_GT(kld, before) << type;
    EXPECT_LT(divergence(expected, logits(type, 32)), kld) << type;
    before = kld;
  }
  EXPECT_LT(before, 0.5);
  EXPECT_LT(divergence(expected, logits("q8_0", 0)), 1e-4);
  EXPECT_LT(2 * divergence(expected, logits("tq3_0", 0)),
            divergence(expected, logits("tq3_0:seed", 0)));
}

TEST_F(CodedCaches, AWindowOverTheWholeContextIsHalfFloatsAlone) {
  const Model half = load(source_, "f16", "f16", 32), coded = load(source_, "tq3_0", "kt2", 399);
  Session expected(half, {400}), found(coded, {400});
  EXPECT_EQ(evaluate(found, tokens_, 0, 400), evaluate(expected, tokens_, 0, 400));
}

// Tokens are kept with the error of having been stored: near what they were, and exact where they
// never were.
TEST_F(CodedCaches, TruncateContinuesFromAnEarlierToken) {
  const Model model = load(source_, "kt4", "kt4", 32);
  Session fresh(model, {300});
  const Rows expected = evaluate(fresh, tokens_, 0, 300);
  for (const int64_t kept : {299, 250, 201, 192, 130, 97, 33, 20, 4, 3, 0}) {
    Session session(model, {300});
    evaluate(session, tokens_, 0, 300);
    session.truncate(kept);
    const Rows rows = evaluate(session, tokens_, kept, 300);
    const Rows same(expected.begin() + kept, expected.end());
    EXPECT_LT(divergence(same, rows), 0.02) << kept;
    if (kept <= 4 || kept == 299) {
      EXPECT_EQ(rows, same) << kept;
    }
  }
}

TEST_F(CodedCaches, SlidingWindowsAndFamiliesWork) {
  for (const char* name : {"mistral-tiny", "qwen2-window-tiny", "qwen3-tiny", "llama2-bias-tiny",
                           "deepseek-v2-dense-tiny", "qwen35-tiny", "gemma4-tiny", "lfm2-tiny",
                           "granite-hybrid-tiny"}) {
    const Model half = load_folder(name, "f16", 0), coded = load_folder(name, "kt4", 0);
    const auto tokens = random_tokens(250, std::min<int64_t>(120, half.config.vocab), kSeed);
    Session expected(half, {250}), found(coded, {250});
    const Rows rows = test::all_logits(found, tokens);
    const double kld = divergence(test::all_logits(expected, tokens), rows);
    EXPECT_GT(kld, 0) << name;
    EXPECT_LT(kld, 0.02) << name;
  }
}

// DeepSeek's models have coded latents; a better type is nearer to f16.
TEST_F(CodedCaches, LatentsWork) {
  SyntheticSource source("tiny-latent",
                         {&get_format("f16"), &get_format("f16"), &get_format("f16")});
  const auto logits = [&](const char* type, int64_t window) {
    const Model model = load(source, type, type, window);
    Session session(model, {400});
    return evaluate(session, tokens_, 0, 400);
  };
  const Rows half = logits("f16", 0);
  double before = 0;
  for (const char* type : {"q8_0", "kt4", "tq3_0", "kt3", "kt2"}) {
    const double kld = divergence(half, logits(type, 0));
    EXPECT_GT(kld, before) << type;
    EXPECT_LT(divergence(half, logits(type, 32)), kld) << type;
    before = kld;
  }
  EXPECT_LT(before, 0.5);
  // The model has no experts, whose choice small errors change.
  const auto tokens = random_tokens(250, 120, kSeed);
  const auto dense = [&](const char* type) {
    const Model model = load_folder("deepseek-v2-dense-tiny", type, 0);
    Session session(model, {250});
    return test::all_logits(session, tokens);
  };
  EXPECT_LT(divergence(dense("f16"), dense("q8_0")), 1e-4);
}

TEST_F(CodedCaches, LatentsDoNotDependOnThePartsOfAText) {
  SyntheticSource source("tiny-latent",
                         {&get_format("tq3"), &get_format("f16"), &get_format("f16")});
  for (const char* type : {"f16", "tq3_0", "q8_0"}) {
    const Model model = load(source, type, type, 7);
    Session session(model, {400});
    const Rows whole = evaluate(session, tokens_, 0, 400);
    for (const int64_t part : {33, 130}) {
      session.reset();
      Rows rows;
      for (int64_t begin = 0; begin < 400; begin += part)
        for (auto& row : evaluate(session, tokens_, begin, std::min<int64_t>(400, begin + part)))
          rows.push_back(std::move(row));
      EXPECT_EQ(rows, whole) << type << " parts of " << part;
    }
    session.truncate(290);
    const Rows again = evaluate(session, tokens_, 290, 400);
    EXPECT_LT(divergence(Rows(whole.begin() + 290, whole.end()), again), 0.02) << type;
  }
}

// The int8 error in attention is small compared with the error of the codes.
TEST_F(CodedCaches, ExactProductsAreNearThoseOfInt8) {
  SyntheticSource source("tiny", {&get_format("f16"), &get_format("f16"), &get_format("f16")});
  const auto logits = [&](const char* type, ActivationMode activations) {
    const Model model = load(source, type, type, 0, activations);
    Session session(model, {300});
    return evaluate(session, tokens_, 0, 300);
  };
  const Rows half = logits("f16", ActivationMode::f32);
  for (const char* type : {"tq3_0", "kt4", "q8_0"}) {
    const Rows exact = logits(type, ActivationMode::f32);
    const Rows found = logits(type, ActivationMode::automatic);
    EXPECT_GT(divergence(exact, found), 0) << type;
    EXPECT_LT(divergence(exact, found), 0.1 * divergence(half, exact)) << type;
  }
}

// A session follows one whose values were not finite.
TEST_F(CodedCaches, ResetLeavesNothingBehind) {
  for (const Kept& kept : {Kept{"kt4", "f16", 0}, Kept{"kt4", "kt4", 0}, Kept{"f16", "kt3", 0}}) {
    const Model model = load(source_, kept.keys, kept.values, kept.window);
    test::OneSequence fresh(model, 300), used(model, 300);
    const auto logits = [&](test::OneSequence& sequence, int64_t count, float spoilt) {
      CpuExecutor& executor = sequence.executor;
      const walsh::Run run{0, 0, count, 1};
      executor.run_parts({std::span(tokens_).first(static_cast<size_t>(count)), {&run, 1}}, [&] {
        executor.embed();
        std::ranges::fill(executor.hidden(count / 2), spoilt);
        for (const LayerSteps& layer : executor.steps().layers)
          for (const Step& step : layer.steps)
            executor.execute(step);
        executor.logits(0, 1);
      });
      const auto row = executor.logit_row(0);
      return std::vector<float>(row.begin(), row.end());
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(logits(used, 250, nan), testing::Contains(testing::IsNan())) << kept.values;
    EXPECT_EQ(logits(used, 100, 1), logits(fresh, 100, 1)) << kept.values;
  }
}

TEST_F(CodedCaches, AFailedBatchIsNotGoneOnWith) {
  const Model model = load(source_, "kt4", "kt4", 200);
  test::OneSequence sequence(model, 400);
  CpuExecutor& executor = sequence.executor;
  const auto run = [&](int64_t position, int64_t rows, bool fails) {
    const walsh::Run one{0, position, rows};
    executor.run_parts({std::span(tokens_).subspan(0, static_cast<size_t>(rows)), {&one, 1}}, [&] {
      executor.embed();
      for (const int layer : {0, 1}) {
        if (fails && layer == 1) throw Error(ErrorCode::limit, "test", "no memory");
        for (const Step& step : std::span(executor.steps().of(layer).steps).first(2))
          executor.execute(step);  // up to the cache
      }
    });
  };
  run(0, 256, false);
  run(256, 40, false);
  EXPECT_THROW(run(296, 1, true), Error);
  EXPECT_THROW(run(296, 1, false), Error) << "the tails of some layers have moved";
  EXPECT_NO_THROW(run(0, 10, false));
}

// The batch may have been stopped anywhere, if it was not too fast for that.
TEST_F(CodedCaches, ASequenceGoesOnBehindABatchThatWasStopped) {
  const Model model = load(source_, "tq3_0", "tq3_0", 32);
  for (const int delay : {0, 2, 5}) {
    Session session(model, {700}), fresh(model, {700});
    evaluate(session, tokens_, 0, 100);
    std::atomic<bool> stop = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      stop = true;
    });
    try {
      const StopScope scope(stop);
      evaluate(session, tokens_, 100, 600);
    } catch (const Error&) {
    }
    other.join();
    const int64_t at = session.position();
    if (at > 0) evaluate(fresh, tokens_, 0, at);
    EXPECT_EQ(evaluate(session, tokens_, at, at + 50), evaluate(fresh, tokens_, at, at + 50));
  }
}

TEST_F(CodedCaches, MoreMemoryIsNeverRefused) {
  const Model model = load(source_, "tq3_0", "tq3_0", 0);
  bool accepted = false;
  for (uint64_t bytes = 1 << 20; bytes < 6 << 20; bytes += 4096) {
    SessionOptions options;
    options.max_positions = 4096;
    options.max_bytes = bytes;
    try {
      const Session session(model, options);
      accepted = true;
    } catch (const Error&) {
      ASSERT_FALSE(accepted) << bytes;
    }
  }
  EXPECT_TRUE(accepted);
}

TEST_F(CodedCaches, MemoryIsRefusedWithNumbersAndLessIsNeeded) {
  const Model coded = load(source_, "tq3_0", "tq3_0", 32), half = load(source_, "f16", "f16", 32);
  SessionOptions options;
  options.max_positions = 4096;
  options.max_bytes = 4096 * 2 * 2 * 64 * 2 * 2;  // of fp16, nothing left for workspaces
  EXPECT_THROW(Session(half, options), Error);
  options.max_bytes = uint64_t{1} << 20;
  try {
    Session session(coded, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_THAT(e.what(), testing::HasSubstr("4096 positions"));
    EXPECT_THAT(e.what(), testing::HasSubstr("tq3_0"));
  }
}

}  // namespace
}  // namespace walsh
