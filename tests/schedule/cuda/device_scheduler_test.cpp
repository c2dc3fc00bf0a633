// Texts sampled on a GPU: their sinks receive a token while the next one is computed.
#include <gmock/gmock.h>

#include "generate/generator.h"
#include "model/cuda/gpu_models.h"
#include "schedule/scheduler.h"

namespace walsh {
namespace {

using testing::ElementsAreArray;

class Told : public RequestSink {
 public:
  explicit Told(size_t enough = 0) : enough_(enough) {}
  bool chosen(const ScoredToken& token) override {
    EXPECT_FALSE(end || error);
    tokens.push_back(token.token);
    return tokens.size() != enough_;
  }
  void ended(const RequestEnd& what) override {
    EXPECT_FALSE(end || error);
    end = what;
  }
  void failed(const Error& what) override { error = what; }

  std::vector<int32_t> tokens;
  std::optional<RequestEnd> end;
  std::optional<Error> error;

 private:
  const size_t enough_;
};

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

  static void finish(Scheduler& scheduler) {
    while (scheduler.step()) {
    }
  }

  Told run(const TextRequest& wanted, size_t enough = 0) const {
    Scheduler scheduler(*model_, small());
    const auto sink = std::make_shared<Told>(enough);
    scheduler.add(wanted, sink);
    finish(scheduler);
    EXPECT_TRUE(sink->end);
    return *sink;
  }

  std::optional<Model> model_;
};

TEST_F(GpuSchedulerTest, ATextAloneIsThatOfGenerate) {
  for (const float temperature : {0.0f, 0.9f}) {
    const TextRequest wanted = request(1, 20, 40, temperature);
    Session session(*model_, {256});
    GenerateOptions options;
    options.sampler = wanted.sampler;
    options.max_tokens = wanted.max_tokens;
    EXPECT_THAT(run(wanted).tokens,
                ElementsAreArray(generate(session, wanted.prompt, options).tokens));
  }
}

TEST_F(GpuSchedulerTest, EveryTextEndsWhereItShould) {
  const std::vector<int32_t> whole = run(request(2, 10, 30)).tokens;
  ASSERT_EQ(whole.size(), 30u);
  const Told enough = run(request(2, 10, 30), 3);
  EXPECT_EQ(enough.end->reason, StopReason::callback);
  EXPECT_EQ(enough.end->tokens, 3);
  EXPECT_THAT(enough.tokens, ElementsAreArray(std::span(whole).first(3)));
  TextRequest stopped = request(2, 10, 30);
  stopped.stop_ids = {whole[7]};
  const auto first = std::find(whole.begin(), whole.end(), whole[7]) - whole.begin();
  const Told told = run(stopped);
  EXPECT_EQ(told.end->reason, StopReason::stop_token);
  EXPECT_EQ(told.end->tokens, first);
  EXPECT_EQ(told.tokens.size(), static_cast<size_t>(first));
  const Told full = run(request(3, 240, -1));
  EXPECT_EQ(full.end->reason, StopReason::context_full);
  EXPECT_EQ(full.tokens.size(), 17u);
}

TEST_F(GpuSchedulerTest, ManyTextsAreToldAllTheirTokens) {
  Scheduler scheduler(*model_, small());
  std::vector<std::shared_ptr<Told>> sinks;
  std::vector<size_t> expected;
  for (uint64_t i = 0; i < 30; ++i) {
    const bool stops = i % 4 == 3;
    expected.push_back(stops ? 5 : 10 + i);
    sinks.push_back(std::make_shared<Told>(stops ? 5 : 0));
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

// Pages for about two of the texts.
TEST_F(GpuSchedulerTest, TextsThatGaveUpTheirPagesGoOn) {
  SchedulerOptions options = small();
  options.cache_positions = 3 * kGpuPagePositions;
  options.positions = 2 * kGpuPagePositions;
  Scheduler scheduler(*model_, options);
  std::vector<std::shared_ptr<Told>> sinks;
  for (uint64_t i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Told>());
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
