#include "schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/random.h"
#include "model/model_support.h"
#include "synthetic_model.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;
using testing::ElementsAreArray;

std::vector<int32_t> random_prompt(uint64_t seed, int64_t length) {
  return test::random_tokens(length, 500, seed);
}

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() : model_(load("f16")) {}

  Model load(const char* cache) { return test::synthetic_model(pool_, cache); }

  static SchedulerOptions small() {
    SchedulerOptions options;
    options.positions = 512;
    options.running = 4;
    options.waiting = 20;
    options.step_tokens = 40;
    options.kept = 3;
    return options;
  }

  static TextRequest request(std::vector<int32_t> prompt, int64_t max_tokens, float temperature = 0,
                             uint64_t seed = 1) {
    TextRequest wanted;
    wanted.prompt = std::move(prompt);
    wanted.max_tokens = max_tokens;
    wanted.sampler.temperature = temperature;
    wanted.sampler.seed = seed;
    return wanted;
  }

  // Returns the text that there is without other requests.
  static std::vector<int32_t> alone(const Model& model, const TextRequest& wanted) {
    return test::plain_text(model, wanted, 512);
  }

  ThreadPool pool_{test::kThreads};
  Model model_;
};

// The model's states can be restored to before the last token of a prompt.
TEST_F(SchedulerTest, RecurrentModelsShareWhatTheyCanGoBackTo) {
  for (const char* name : {"qwen35-tiny", "lfm2-tiny", "granite-hybrid-tiny"}) {
    SCOPED_TRACE(name);
    const Model model = test::load_folder(test::tiny_model(name), pool_);
    SchedulerOptions options = small();
    options.positions = 250;
    Scheduler scheduler(model, options);
    const auto prompt = test::random_tokens(100, model.config.vocab, 1);
    auto longer = prompt, other = prompt;
    longer.insert(longer.end(), {5, 6, 7});
    other[50] = (other[50] + 1) % 40 + 3;
    const std::pair<std::vector<int32_t>, int64_t> expected[] = {
        {prompt, 0}, {prompt, 99}, {longer, 99}, {other, 0}, {longer, 102}};
    for (const auto& [text, cached] : expected) {
      const TextRequest wanted = request(text, 12);
      auto sink = std::make_shared<Recorder>();
      scheduler.add(wanted, sink);
      finish(scheduler);
      ASSERT_TRUE(sink->end);
      EXPECT_THAT(sink->tokens, ElementsAreArray(test::plain_text(model, wanted, 250)));
      EXPECT_EQ(sink->end->cached_tokens, cached);
    }
  }
}

TEST_F(SchedulerTest, TextsAreThoseThatEachRequestGetsAlone) {
  Scheduler scheduler(model_, small());
  Random random(3);
  std::vector<TextRequest> requests;
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 14; ++i) {
    const auto length = static_cast<int64_t>(1 + random.below(i % 3 == 0 ? 150 : 20));
    requests.push_back(request(random_prompt(i, length), static_cast<int64_t>(1 + random.below(30)),
                               i % 2 == 0 ? 0.0f : 0.9f, i));
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(requests.back(), sinks.back());
    for (uint64_t step = random.below(6); step > 0; --step)
      scheduler.step();
  }
  finish(scheduler);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(sinks[i]->end) << i;
    EXPECT_THAT(sinks[i]->tokens, ElementsAreArray(alone(model_, requests[i]))) << i;
    EXPECT_EQ(sinks[i]->end->tokens, static_cast<int64_t>(sinks[i]->tokens.size()));
    EXPECT_EQ(sinks[i]->end->reason, StopReason::max_tokens);
  }
  const SchedulerCounts counts = scheduler.counts();
  EXPECT_EQ(counts.requests, 14u);
  EXPECT_EQ(counts.ended, 14u);
  EXPECT_EQ(counts.preempted, 0u);
  uint64_t prompts = 0, generated = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    prompts += requests[i].prompt.size();
    generated += sinks[i]->tokens.size();
  }
  EXPECT_EQ(counts.prompt_tokens + counts.cached_tokens, prompts);
  EXPECT_EQ(counts.generated_tokens, generated);
  EXPECT_EQ(counts.running + counts.waiting, 0);
  EXPECT_LE(counts.kept, 3);
}

TEST_F(SchedulerTest, EveryRunningRequestGetsATokenInEveryStepWhileAPromptIsRead) {
  Scheduler scheduler(model_, small());
  const auto first = std::make_shared<Recorder>(), second = std::make_shared<Recorder>();
  scheduler.add(request(random_prompt(1, 3), 100), first);
  scheduler.step();
  scheduler.add(request(random_prompt(2, 400), 5), second);
  size_t steps = 0;
  for (; second->tokens.empty(); ++steps) {
    const size_t before = first->tokens.size();
    scheduler.step();
    EXPECT_EQ(first->tokens.size(), before + 1);
  }
  EXPECT_EQ(steps, 11u) << "400 tokens, 39 of each step";
}

// There are pages for about two of the texts.
TEST_F(SchedulerTest, TextsThatWereMovedOutGoOnAsTheyWouldHave) {
  SchedulerOptions options = small();
  options.cache_positions = 3 * kCpuPagePositions;
  Scheduler scheduler(model_, options);
  std::vector<TextRequest> requests;
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 5; ++i) {
    requests.push_back(request(random_prompt(i, 230), 40, i % 2 == 0 ? 0.0f : 0.8f, i));
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(requests.back(), sinks.back());
  }
  finish(scheduler);
  EXPECT_GT(scheduler.counts().preempted, 0u);
  EXPECT_LE(scheduler.counts().preempted, 15u) << "three others may try whenever one has ended";
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_THAT(sinks[i]->tokens, ElementsAreArray(alone(model_, requests[i]))) << i;
}

TEST_F(SchedulerTest, PromptsComeInOnlyWhereThereArePagesForThem) {
  SchedulerOptions options = small();
  options.cache_positions = 5 * kCpuPagePositions;
  Scheduler scheduler(model_, options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 8; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(request(random_prompt(i, 230), 3), sinks.back());
  }
  finish(scheduler);
  for (const auto& sink : sinks)
    EXPECT_EQ(sink->tokens.size(), 3u);
  EXPECT_EQ(scheduler.counts().preempted, 0u);
  EXPECT_EQ(scheduler.counts().prompt_tokens, 8u * 230) << "none is read twice";
}

TEST_F(SchedulerTest, EqualPromptsThatComeTogetherAreReadOnce) {
  Scheduler scheduler(model_, small());
  const auto prompt = random_prompt(1, 300), other = random_prompt(2, 50);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(request(i == 2 ? other : prompt, 5), sinks.back());
  }
  finish(scheduler);
  // They come in as soon as hardly anything is left to read.
  EXPECT_GE(scheduler.counts().prompt_tokens, 300u + 50 + 2);
  EXPECT_LE(scheduler.counts().prompt_tokens, 300u + 50 + 2 * 8);
  for (const size_t i : {0u, 1u, 3u})
    EXPECT_THAT(sinks[i]->tokens, ElementsAreArray(alone(model_, request(prompt, 5))));
  EXPECT_THAT(sinks[2]->tokens, ElementsAreArray(alone(model_, request(other, 5))));
}

// Neither what is kept nor what is being read tells one owner of another's texts.
TEST_F(SchedulerTest, BeginningsAreSharedByOneOwnersTextsOnly) {
  Scheduler scheduler(model_, small());
  const auto prompt = random_prompt(1, 100);
  const auto add = [&](const std::string& owner) {
    TextRequest wanted = request(prompt, 3);
    wanted.owner = owner;
    auto sink = std::make_shared<Recorder>();
    scheduler.add(wanted, sink);
    return sink;
  };
  const auto cached = [](const Recorder& sink) { return sink.end ? sink.end->cached_tokens : -1; };
  // Texts come together: the second of an owner waits for the first, that of another does not.
  const auto first = add("a"), equal = add("a"), other = add("b");
  finish(scheduler);
  EXPECT_EQ(cached(*first), 0);
  EXPECT_GT(cached(*equal), 90);
  EXPECT_EQ(cached(*other), 0);
  // Texts come one after the other, and beside one that is running.
  const auto kept = add("a"), stranger = add("c");
  scheduler.step();
  const auto beside = add("d");
  finish(scheduler);
  EXPECT_EQ(cached(*kept), 99);
  EXPECT_EQ(cached(*stranger), 0);
  EXPECT_EQ(cached(*beside), 0);
  // Continuing another owner's text does not evict that owner's prefix.
  const auto again = add("a");
  finish(scheduler);
  EXPECT_EQ(cached(*again), 99);
}

// A clock says how long each step took.
TEST_F(SchedulerTest, PiecesOfPromptsAreAsLongAsTheTimeOfAStepAllows) {
  const auto steps_of = [&](double seconds_of_a_step) {
    SchedulerOptions options = small();
    options.step_seconds = 0.05;
    bool ends = false;
    double now = 0, seconds = 0.001;
    options.clock = [&] {
      if (ends) now += seconds;
      ends = !ends;
      return now;
    };
    Scheduler scheduler(model_, options);
    const auto first = std::make_shared<Recorder>(), second = std::make_shared<Recorder>();
    scheduler.add(request(random_prompt(1, 3), 400), first);
    for (int i = 0; i < 3; ++i)
      scheduler.step();
    scheduler.add(request(random_prompt(2, 400), 1), second);
    seconds = seconds_of_a_step;
    size_t steps = 0;
    for (; second->tokens.empty(); ++steps) {
      const size_t before = first->tokens.size();
      scheduler.step();
      EXPECT_EQ(first->tokens.size(), before + 1);
    }
    return steps;
  };
  EXPECT_EQ(steps_of(0.0001), 11u) << "39 tokens of each step but for the first, which has 32";
  EXPECT_GT(steps_of(0.5), 40u) << "the least that is read, 8 tokens, after the first two";
}

// This sink throws when it is called.
class BrokenSink : public Recorder {
 public:
  explicit BrokenSink(int64_t breaks_at) : breaks_at_(breaks_at) {}
  bool chosen(const ScoredToken& token) override {
    const bool more = Recorder::chosen(token);
    if (static_cast<int64_t>(tokens.size()) == breaks_at_) throw std::runtime_error("broken");
    return more;
  }
  void ended(const RequestEnd&) override { throw std::bad_alloc(); }

 private:
  int64_t breaks_at_;
};

TEST_F(SchedulerTest, ASinkThatFailsLosesItsOwnTextAlone) {
  Scheduler scheduler(model_, small());
  const auto early = std::make_shared<BrokenSink>(2), late = std::make_shared<BrokenSink>(-1);
  const auto whole = std::make_shared<Recorder>();
  scheduler.add(request(random_prompt(1, 20), 5), early);
  scheduler.add(request(random_prompt(2, 20), 5), late);
  scheduler.add(request(random_prompt(3, 20), 5), whole);
  finish(scheduler);
  ASSERT_TRUE(early->error && late->error);
  EXPECT_EQ(early->error->code(), ErrorCode::internal);
  EXPECT_EQ(late->error->code(), ErrorCode::limit);
  EXPECT_TRUE(whole->end);
  EXPECT_EQ(scheduler.counts().failed, 2u);
  EXPECT_EQ(scheduler.counts().ended, 1u);
}

TEST_F(SchedulerTest, BeginningsInCommonAreEvaluatedOnce) {
  Scheduler scheduler(model_, small());
  const auto system = random_prompt(1, 300);
  const auto with = [&](uint64_t seed) {
    std::vector<int32_t> prompt = system;
    const auto more = random_prompt(seed, 10);
    prompt.insert(prompt.end(), more.begin(), more.end());
    return request(prompt, 6);
  };
  const auto run = [&](const TextRequest& wanted) {
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(wanted, sink);
    finish(scheduler);
    EXPECT_THAT(sink->tokens, ElementsAreArray(alone(model_, wanted)));
    return *sink;
  };
  const TextRequest first = with(2);
  const Recorder one = run(first);
  EXPECT_EQ(one.end->cached_tokens, 0);
  EXPECT_EQ(run(with(3)).end->cached_tokens, 300);
  // The conversation continues: its prompt contains the previous prompt and answer.
  TextRequest next = first;
  next.prompt.insert(next.prompt.end(), one.tokens.begin(), one.tokens.end());
  next.prompt.push_back(7);
  EXPECT_EQ(run(next).end->cached_tokens, 315) << "the last token was not evaluated";
  EXPECT_EQ(run(first).end->cached_tokens, 309);
  // The text goes on beside one that is still running.
  const auto a = std::make_shared<Recorder>(), b = std::make_shared<Recorder>();
  const auto other = random_prompt(9, 200);
  scheduler.add(request(other, 30), a);
  for (int step = 0; step < 10; ++step)
    scheduler.step();
  scheduler.add(request(other, 10), b);
  finish(scheduler);
  EXPECT_EQ(b->end->cached_tokens, 199);
  EXPECT_THAT(b->tokens, ElementsAreArray(std::span(a->tokens).first(10)));
}

TEST_F(SchedulerTest, CodedCachesShareBeginningsToo) {
  const Model model = load("tq3_0");
  Scheduler scheduler(model, small());
  const TextRequest wanted = request(random_prompt(1, 200), 8);
  for (const int64_t cached : {0, 199}) {
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(wanted, sink);
    finish(scheduler);
    EXPECT_EQ(sink->end->cached_tokens, cached);
    EXPECT_EQ(sink->tokens.size(), 8u);
    if (cached == 0) {
      EXPECT_THAT(sink->tokens, ElementsAreArray(alone(model, wanted)));
    }
  }
}

TEST_F(SchedulerTest, ARequestEndsWhereItsTextDoes) {
  Scheduler scheduler(model_, small());
  TextRequest wanted = request(random_prompt(5, 6), 20);
  const auto whole = alone(model_, wanted);
  const auto run = [&](const TextRequest& r, int64_t enough = -1) {
    const auto sink = std::make_shared<Recorder>();
    sink->enough = enough;
    scheduler.add(r, sink);
    finish(scheduler);
    EXPECT_TRUE(sink->end);
    return *sink;
  };
  const Recorder told = run(wanted, 3);
  EXPECT_EQ(told.end->reason, StopReason::callback);
  EXPECT_THAT(told.tokens, ElementsAreArray(std::span(whole).first(3)));
  wanted.stop_ids = {whole[7]};
  const auto first = std::find(whole.begin(), whole.end(), whole[7]) - whole.begin();
  const Recorder stopped = run(wanted);
  EXPECT_EQ(stopped.end->reason, StopReason::stop_token);
  EXPECT_EQ(stopped.end->tokens, first);
  wanted = request(random_prompt(5, 500), -1);
  const Recorder full = run(wanted);
  EXPECT_EQ(full.end->reason, StopReason::context_full);
  EXPECT_THAT(full.tokens, ElementsAreArray(alone(model_, wanted)));
  wanted.max_tokens = 0;
  EXPECT_TRUE(run(wanted).tokens.empty());
}

TEST_F(SchedulerTest, CancelledRequestsEndBeforeTheNextStep) {
  Scheduler scheduler(model_, small());
  std::vector<std::shared_ptr<Recorder>> sinks;
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 6; ++i) {  // two of them wait
    sinks.push_back(std::make_shared<Recorder>());
    ids.push_back(scheduler.add(request(random_prompt(i, 10), 50), sinks.back()));
  }
  for (int step = 0; step < 3; ++step)
    scheduler.step();
  const size_t before = sinks[1]->tokens.size();
  scheduler.cancel(ids[1]);
  scheduler.cancel(ids[5]);
  scheduler.cancel(12345);
  scheduler.step();
  EXPECT_EQ(sinks[1]->end->reason, StopReason::callback);
  EXPECT_EQ(sinks[1]->tokens.size(), before);
  EXPECT_TRUE(sinks[5]->end && sinks[5]->tokens.empty());
  finish(scheduler);
  EXPECT_EQ(sinks[4]->tokens.size(), 50u);
  EXPECT_EQ(scheduler.counts().cancelled, 2u);
}

TEST_F(SchedulerTest, LogarithmsOfProbabilitiesAreThoseOfTheLogits) {
  Scheduler scheduler(model_, small());
  TextRequest wanted = request(random_prompt(8, 70), 3);
  wanted.logprobs = 4;
  wanted.prompt_logprobs = true;
  const auto sink = std::make_shared<Recorder>();
  scheduler.add(wanted, sink);
  finish(scheduler);
  ASSERT_EQ(sink->prompt.size(), 69u);
  std::vector<int32_t> text = wanted.prompt;
  text.insert(text.end(), sink->tokens.begin(), sink->tokens.end());
  Session session(model_, {512});
  const auto rows = test::all_logits(session, text);
  std::vector<ScoredToken> scored = sink->prompt;
  scored.insert(scored.end(), sink->scored.begin(), sink->scored.end());
  for (size_t i = 0; i < scored.size(); ++i) {
    const std::vector<float>& row = rows[i];
    double sum = 0;
    for (const float logit : row)
      sum += std::exp(static_cast<double>(logit));
    ASSERT_EQ(scored[i].token, text[i + 1]);
    EXPECT_NEAR(scored[i].logprob, row[static_cast<size_t>(text[i + 1])] - std::log(sum), 1e-4);
    ASSERT_EQ(scored[i].best.size(), 4u);
    EXPECT_EQ(scored[i].best[0].token, std::max_element(row.begin(), row.end()) - row.begin());
    EXPECT_GE(scored[i].best[0].logprob, scored[i].best[3].logprob);
  }
}

TEST_F(SchedulerTest, RefusesWhatCannotBeServed) {
  SchedulerOptions options = small();
  options.waiting = 1;
  Scheduler scheduler(model_, options);
  const auto sink = std::make_shared<Recorder>();
  const auto code_of = [&](const TextRequest& wanted) {
    try {
      scheduler.add(wanted, sink);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of(request({}, 1)), ErrorCode::usage);
  EXPECT_EQ(code_of(request({100000}, 1)), ErrorCode::usage);
  EXPECT_EQ(code_of(request(random_prompt(1, 513), 1)), ErrorCode::usage);
  EXPECT_EQ(code_of(request({1}, 1, -3)), ErrorCode::usage);
  for (int i = 0; i < 5; ++i)
    scheduler.add(request({1}, 1), std::make_shared<Recorder>());
  EXPECT_EQ(code_of(request({1}, 1)), ErrorCode::limit);
  finish(scheduler);
  EXPECT_EQ(scheduler.counts().refused, 1u);
  EXPECT_EQ(scheduler.counts().ended, 5u);
}

TEST_F(SchedulerTest, RunsOnAThreadOfItsOwnUntilItIsStopped) {
  Scheduler scheduler(model_, small());
  std::thread thread([&] { scheduler.run(); });
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(request(random_prompt(i, 5), i == 3 ? -1 : 4), sinks.back());
  }
  while (scheduler.counts().ended < 3)
    std::this_thread::yield();
  scheduler.stop();
  thread.join();
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(sinks[i]->tokens.size(), 4u);
  ASSERT_TRUE(sinks[3]->end);
  EXPECT_THROW(scheduler.add(request({1}, 1), sinks[0]), Error);
}

TEST_F(SchedulerTest, LookedUpTokensChangeNoText) {
  SchedulerOptions options = small();
  options.lookup = true;
  options.cache_positions = 700;  // pages run out now and then
  Scheduler scheduler(model_, options);
  std::vector<TextRequest> requests;
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint64_t i = 0; i < 12; ++i) {
    std::vector<int32_t> prompt;
    const auto part = random_prompt(i / 2, 7);
    for (int k = 0; k < 6; ++k)
      prompt.insert(prompt.end(), part.begin(), part.end());
    requests.push_back(request(prompt, 120, i % 3 == 0 ? 0.0f : 0.4f, i));
    requests.back().sampler.top_k = 2;
    if (i % 4 == 1) requests.back().stop_ids = {alone(model_, requests.back())[60]};
    if (i % 4 == 2) requests.back().logprobs = 1;
    sinks.push_back(std::make_shared<Recorder>());
    scheduler.add(requests.back(), sinks.back());
    scheduler.step();
  }
  finish(scheduler);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(sinks[i]->end) << i;
    EXPECT_THAT(sinks[i]->tokens, ElementsAreArray(alone(model_, requests[i]))) << i;
  }
  const SchedulerCounts counts = scheduler.counts();
  EXPECT_GT(counts.drafted_right, 0u);
  EXPECT_LT(counts.drafted_right, counts.drafted_tokens);
  EXPECT_LT(counts.steps, counts.generated_tokens);
}

}  // namespace
}  // namespace walsh
