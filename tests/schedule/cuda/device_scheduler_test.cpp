// Tests texts sampled on a GPU, which computes the next token before the host has seen this one.
#include <gmock/gmock.h>

#include <algorithm>

#include "../texts.h"
#include "generate/model_drafts.h"
#include "model/cuda/gpu_models.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;
using testing::ElementsAreArray;

class GpuSchedulerTest : public test::GpuTest {
 protected:
  void SetUp() override {
    test::GpuTest::SetUp();
    if (IsSkipped()) return;
    SyntheticSource source = test::synthetic("tq4", "f16");
    model_.emplace(load(source, gpu_));
  }

  static TextRequest request(uint64_t seed, int64_t length, int64_t max_tokens,
                             float temperature = 0) {
    TextRequest wanted;
    wanted.prompt = test::random_tokens(length, 500, seed);
    wanted.max_tokens = max_tokens;
    wanted.sampler.temperature = temperature;
    return wanted;
  }

  static SchedulerOptions small() {
    SchedulerOptions options;
    options.positions = 256;
    options.running = 8;
    options.step_tokens = 64;
    return options;
  }

  Recorder run(const TextRequest& wanted, int64_t enough = -1) const {
    Scheduler scheduler(*model_, small());
    const auto sink = std::make_shared<Recorder>();
    sink->enough = enough;
    scheduler.add(wanted, sink);
    finish(scheduler);
    EXPECT_TRUE(sink->end);
    return *sink;
  }

  std::optional<Model> model_;
};

TEST_F(GpuSchedulerTest, ATextAloneIsWhatTheHostWouldChoose) {
  for (const float temperature : {0.0f, 0.9f}) {
    const TextRequest wanted = request(1, 20, 40, temperature);
    EXPECT_THAT(run(wanted).tokens, ElementsAreArray(test::plain_text(*model_, wanted, 256)));
    Scheduler one(*model_, SessionOptions{256});
    const auto sink = std::make_shared<Recorder>();
    one.add(wanted, sink);
    finish(one);
    EXPECT_EQ(sink->tokens, run(wanted).tokens);
  }
}

TEST_F(GpuSchedulerTest, EveryTextEndsWhereItShould) {
  const std::vector<int32_t> whole = run(request(2, 10, 30)).tokens;
  ASSERT_EQ(whole.size(), 30u);
  const Recorder enough = run(request(2, 10, 30), 3);
  EXPECT_EQ(enough.end->reason, StopReason::callback);
  EXPECT_EQ(enough.end->tokens, 3);
  EXPECT_THAT(enough.tokens, ElementsAreArray(std::span(whole).first(3)));
  TextRequest stopped = request(2, 10, 30);
  stopped.stop_ids = {whole[7]};
  const auto first = std::find(whole.begin(), whole.end(), whole[7]) - whole.begin();
  const Recorder told = run(stopped);
  EXPECT_EQ(told.end->reason, StopReason::stop_token);
  EXPECT_EQ(told.end->tokens, first);
  EXPECT_EQ(told.tokens.size(), static_cast<size_t>(first));
  const Recorder full = run(request(3, 240, -1));
  EXPECT_EQ(full.end->reason, StopReason::context_full);
  EXPECT_EQ(full.tokens.size(), 17u);
}

TEST_F(GpuSchedulerTest, ManyTextsAreToldAllTheirTokens) {
  Scheduler scheduler(*model_, small());
  std::vector<std::shared_ptr<Recorder>> sinks;
  std::vector<size_t> expected;
  for (uint64_t i = 0; i < 30; ++i) {
    const bool stops = i % 4 == 3;
    expected.push_back(stops ? 5 : 10 + i);
    sinks.push_back(std::make_shared<Recorder>());
    if (stops) sinks.back()->enough = 5;
    scheduler.add(request(i, static_cast<int64_t>(1 + 7 * i % 90), static_cast<int64_t>(10 + i),
                          i % 2 == 0 ? 0.0f : 0.8f),
                  sinks.back());
    if (i % 3 == 0) scheduler.step();
  }
  finish(scheduler);
  uint64_t all = 0;
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(sinks[i]->end) << i;
    EXPECT_EQ(sinks[i]->tokens.size(), expected[i]) << i;
    EXPECT_EQ(sinks[i]->end->tokens, static_cast<int64_t>(expected[i])) << i;
    all += expected[i];
  }
  EXPECT_EQ(scheduler.counts().generated_tokens, all);
  EXPECT_EQ(scheduler.counts().failed, 0u);
}

// Every token is the best one, but for rounding, behind those before it.
TEST_F(GpuSchedulerTest, GuessesOfAModelChangeNothingButRounding) {
  CheckpointSource recurrent = CheckpointSource::open(test::tiny_model("qwen35-tiny"));
  SyntheticSource synthetic = test::synthetic("tq4", "f16");
  const auto check = [&](WeightSource& source, const char* cache) {
    const CacheTypes types{&get_cache_type(cache), &get_cache_type(cache), 32};
    const Model model = load(source, gpu_, ActivationMode::automatic, types);
    const Model draft = load(source, gpu_);
    for (const int64_t running : {1, 4}) {
      const DraftCosts cheap{0.02, 0.02};
      ModelDrafts drafts(draft, running, 200, &cheap);
      SchedulerOptions options = small();
      options.positions = 200;
      options.running = running;
      options.share_prefixes = false;
      options.drafts = &drafts;
      Scheduler scheduler(model, options);
      std::vector<TextRequest> wanted;
      std::vector<std::shared_ptr<Recorder>> sinks;
      for (uint64_t i = 0; i < 4; ++i) {
        wanted.push_back(request(i, static_cast<int64_t>(5 + 30 * i), 80));
        for (int32_t& token : wanted.back().prompt)
          token %= static_cast<int32_t>(model.config.vocab);
        sinks.push_back(std::make_shared<Recorder>());
        scheduler.add(wanted.back(), sinks.back());
      }
      finish(scheduler);
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_TRUE(sinks[i]->end) << cache << i;
        ASSERT_EQ(sinks[i]->tokens.size(), 80u) << cache << i;
        std::vector<int32_t> text = wanted[i].prompt;
        text.insert(text.end(), sinks[i]->tokens.begin(), sinks[i]->tokens.end());
        Session session(model, {200});
        const test::Rows rows = test::all_logits(session, text);
        for (size_t at = wanted[i].prompt.size(); at < text.size(); ++at) {
          const std::vector<float>& row = rows[at - 1];
          const auto [least, most] = std::minmax_element(row.begin(), row.end());
          EXPECT_GT(row[static_cast<size_t>(text[at])], *most - 0.05f * (*most - *least))
              << cache << " text " << i << " token " << at;
        }
      }
      const SchedulerCounts counts = scheduler.counts();
      EXPECT_GT(counts.drafted_right, counts.drafted_tokens / 4) << cache;
      EXPECT_LT(counts.steps, counts.generated_tokens) << cache;
    }
  };
  for (const char* cache : {"f16", "q8_0", "tq3_0"})
    check(synthetic, cache);
  check(recurrent, "f16");
}

// What was kept of a text goes on: the step that came too much is taken back.
TEST_F(GpuSchedulerTest, ATextGoesOnBehindItsStopToken) {
  for (const int64_t running : {1, 4}) {
    SchedulerOptions options = small();
    options.running = running;
    Scheduler many(*model_, options), one(*model_, SessionOptions{256});
    for (Scheduler* scheduler : {&many, &one}) {
      TextRequest wanted = request(2, 10, 30);
      const std::vector<int32_t> whole = test::plain_text(*model_, wanted, 256);
      wanted.stop_ids = {whole[9]};
      const auto first = std::find(whole.begin(), whole.end(), whole[9]) - whole.begin();
      const auto sink = std::make_shared<Recorder>();
      scheduler->add(wanted, sink);
      finish(*scheduler);
      ASSERT_TRUE(sink->end);
      EXPECT_EQ(sink->end->tokens, first);
      TextRequest next = wanted;
      next.stop_ids.clear();
      next.prompt.insert(next.prompt.end(), sink->tokens.begin(), sink->tokens.end());
      EXPECT_THAT(scheduler->kept_tokens(), ElementsAreArray(next.prompt));
      const auto more = std::make_shared<Recorder>();
      scheduler->add(next, more);
      finish(*scheduler);
      ASSERT_TRUE(more->end);
      EXPECT_EQ(more->end->cached_tokens, 10 + first - 1);
      EXPECT_EQ(more->tokens.size(), 30u);
    }
  }
}

// The state behind the text is gone, so that its stop token becomes a part of what is kept.
TEST_F(GpuSchedulerTest, ARecurrentTextGoesOnWithItsStopToken) {
  CheckpointSource source = CheckpointSource::open(test::tiny_model("qwen35-tiny"));
  const Model model = load(source, gpu_);
  Scheduler scheduler(model, SessionOptions{128});
  const auto told = [&](const TextRequest& wanted) {
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(wanted, sink);
    finish(scheduler);
    EXPECT_TRUE(sink->end);
    return *sink;
  };
  TextRequest wanted = request(2, 10, 30);
  for (int32_t& token : wanted.prompt)
    token %= static_cast<int32_t>(model.config.vocab);
  wanted.shares_prefix = false;
  const std::vector<int32_t> whole = told(wanted).tokens;
  ASSERT_EQ(whole.size(), 30u);
  wanted.stop_ids = {whole[9]};
  const Recorder text = told(wanted);
  wanted.prompt.insert(wanted.prompt.end(), text.tokens.begin(), text.tokens.end());
  wanted.prompt.push_back(whole[9]);
  EXPECT_THAT(scheduler.kept_tokens(), ElementsAreArray(wanted.prompt));
  const auto known = static_cast<int64_t>(wanted.prompt.size());
  wanted.prompt.push_back(7);
  wanted.shares_prefix = true;
  wanted.stop_ids.clear();
  const Recorder more = told(wanted);
  EXPECT_EQ(more.end->cached_tokens, known);
  EXPECT_EQ(more.tokens.size(), 30u);
}

// Some texts need their logits, some are cancelled, and others are ordinary.
TEST_F(GpuSchedulerTest, TextsOfHostAndDeviceGoTogether) {
  Scheduler scheduler(*model_, small());
  std::vector<std::shared_ptr<Recorder>> sinks;
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 9; ++i) {
    TextRequest wanted = request(i, static_cast<int64_t>(5 + 10 * i), 40, i % 2 == 0 ? 0.0f : 0.8f);
    if (i % 3 == 0) wanted.logprobs = 1;
    sinks.push_back(std::make_shared<Recorder>());
    ids.push_back(scheduler.add(wanted, sinks.back()));
    scheduler.step();
  }
  for (int step = 0; step < 10; ++step)
    scheduler.step();
  scheduler.cancel(ids[4]);
  scheduler.cancel(ids[6]);
  finish(scheduler);
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(sinks[i]->end) << i;
    const bool cancelled = i == 4 || i == 6;
    EXPECT_EQ(sinks[i]->end->reason, cancelled ? StopReason::callback : StopReason::max_tokens);
    EXPECT_EQ(sinks[i]->tokens.size() == 40u, !cancelled) << i;
    EXPECT_EQ(sinks[i]->end->tokens, std::ssize(sinks[i]->tokens)) << i;
  }
  EXPECT_EQ(scheduler.counts().cancelled, 2u);
}

// There are pages for about two of the texts.
TEST_F(GpuSchedulerTest, TextsThatGaveUpTheirPagesGoOn) {
  SchedulerOptions options = small();
  options.cache_positions = 3 * kGpuPagePositions;
  options.positions = 2 * kGpuPagePositions;
  Scheduler scheduler(*model_, options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(request(i, kGpuPagePositions - 10, 40), sinks.back());
  }
  finish(scheduler);
  EXPECT_GT(scheduler.counts().preempted, 0u);
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->end);
    EXPECT_EQ(sink->tokens.size(), 40u);
  }
}

}  // namespace
}  // namespace walsh
