// Tests texts whose tokens another model guesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <new>
#include <utility>

#include "generate/model_drafts.h"
#include "model/model_support.h"
#include "schedule/scheduler.h"
#include "synthetic_model.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;
using testing::ElementsAreArray;

constexpr int64_t kPositions = 200;
// Guessing is always worth it.
constexpr DraftCosts kCheap = {0.02, 0.02};

// Passes the guesses of another source on, and makes one in so many wrong.
class Careless : public DraftSource {
 public:
  Careless(DraftSource& source, int64_t every) : source_(source), every_(every) {}
  void serve(const Model& model) override {
    source_.serve(model);
    vocab_ = model.config.vocab;
  }
  int64_t begin(std::span<const int32_t> tokens, const std::string& owner) override {
    return source_.begin(tokens, owner);
  }
  void end(int64_t text) override { source_.end(text); }
  void draft(std::span<DraftTask> tasks) override {
    source_.draft(tasks);
    for (DraftTask& task : tasks)
      for (int32_t& token : task.drafted)
        if (++count_ % every_ == 0) token = static_cast<int32_t>((token + 1) % vocab_);
  }
  void judge(int64_t text, size_t drafted, size_t right) override {
    source_.judge(text, drafted, right);
  }

 private:
  DraftSource& source_;
  const int64_t every_;
  int64_t vocab_ = 1, count_ = 0;
};

// Fails from a number of guesses on, as if memory ran out.
class Failing : public Careless {
 public:
  Failing(DraftSource& source, int calls) : Careless(source, kPositions), left_(calls) {}
  void draft(std::span<DraftTask> tasks) override {
    if (left_-- <= 0) throw std::bad_alloc();
    Careless::draft(tasks);
  }

 private:
  int left_;
};

class Drafts : public testing::Test {
 protected:
  Model synthetic(const char* cache = "f16", const char* type = "tq4") {
    return test::synthetic_model(pool_, cache, type);
  }
  Model folder(const char* name) { return test::load_folder(test::tiny_model(name), pool_); }

  static SchedulerOptions batching(DraftSource* drafts) {
    SchedulerOptions options;
    options.positions = kPositions;
    options.running = 3;
    options.step_tokens = 50;
    options.share_prefixes = false;  // with coded caches a shared beginning changes what follows
    options.drafts = drafts;
    return options;
  }

  static std::vector<TextRequest> requests(const Model& model, size_t count) {
    std::vector<TextRequest> all;
    for (uint64_t i = 0; i < count; ++i) {
      TextRequest& wanted = all.emplace_back();
      wanted.prompt =
          test::random_tokens(static_cast<int64_t>(3 + 40 * (i % 3)), model.config.vocab, i);
      wanted.max_tokens = 60;
      wanted.sampler.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      wanted.sampler.seed = i;
      if (i % 4 == 1) wanted.sampler.repeat_penalty = 1.2f;
      if (i % 4 == 3) wanted.logprobs = 1;
      if (i % 3 == 2) wanted.stop_ids = {test::plain_text(model, wanted, kPositions)[40]};
    }
    return all;
  }

  // Checks that every text is that without drafts.
  static SchedulerCounts expect_same_texts(const Model& model, const SchedulerOptions& options,
                                           const std::string& what) {
    Scheduler scheduler(model, options);
    const std::vector<TextRequest> wanted = requests(model, 6);
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (const TextRequest& request : wanted) {
      sinks.push_back(std::make_shared<Recorder>());
      scheduler.add(request, sinks.back());
      scheduler.step();
    }
    finish(scheduler);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(sinks[i]->end) << what << i;
      EXPECT_THAT(sinks[i]->tokens,
                  ElementsAreArray(test::plain_text(model, wanted[i], kPositions)))
          << what << i;
    }
    return scheduler.counts();
  }

  ThreadPool pool_{test::kThreads};
};

TEST_F(Drafts, ChangeNoTextWithAnyCache) {
  const Model draft = synthetic();
  for (const char* cache : {"f16", "q8_0", "tq3_0", "kt2"}) {
    const Model model = synthetic(cache);
    ModelDrafts drafts(draft, 3, kPositions, &kCheap);
    Careless careless(drafts, 5);
    const SchedulerCounts counts = expect_same_texts(model, batching(&careless), cache);
    EXPECT_GT(counts.drafted_right, 0u) << cache;
    EXPECT_LT(counts.drafted_right, counts.drafted_tokens) << cache;
    EXPECT_LT(counts.steps, counts.generated_tokens) << cache;
  }
}

TEST_F(Drafts, ChangeNoTextOfRecurrentModels) {
  const Model model = folder("qwen35-tiny"), other = folder("qwen3-tiny");
  for (const Model* draft : {&model, &other}) {
    for (const int64_t every : {3, 1000000}) {
      ModelDrafts drafts(*draft, 3, kPositions, &kCheap);
      Careless careless(drafts, every);
      const SchedulerCounts counts =
          expect_same_texts(model, batching(&careless), draft->config.family);
      EXPECT_TRUE(draft == &other || counts.drafted_right > 0);
    }
  }
}

TEST_F(Drafts, ChangeNoTextOfModelsWithShortConvolutions) {
  const Model model = folder("lfm2-tiny");
  for (const int64_t every : {3, 1000000}) {
    ModelDrafts drafts(model, 3, kPositions, &kCheap);
    Careless careless(drafts, every);
    EXPECT_GT(expect_same_texts(model, batching(&careless), "lfm2 ").drafted_right, 0U);
  }
}

// The guesses are the same with the same random numbers: nearly every one is right.
TEST_F(Drafts, OfTheSameModelAreRight) {
  const Model model = folder("qwen35-tiny");
  ModelDrafts drafts(model, 3, kPositions, &kCheap);
  const SchedulerCounts counts = expect_same_texts(model, batching(&drafts), "same ");
  EXPECT_GT(static_cast<double>(counts.drafted_right),
            0.9 * static_cast<double>(counts.drafted_tokens));
}

TEST_F(Drafts, ChangeNoTextWherePagesRunOut) {
  const Model model = synthetic();
  ModelDrafts drafts(model, 4, kPositions, &kCheap);
  Careless careless(drafts, 4);
  SchedulerOptions options = batching(&careless);
  options.running = 4;
  options.cache_positions = 512;
  options.share_prefixes = true;
  EXPECT_GT(expect_same_texts(model, options, "few pages ").drafted_right, 0u);
}

// Models of one tokenizer may have more or fewer rows; and a draft model fewer positions or places.
TEST_F(Drafts, OfModelsWithOtherSizesEndWhereTheyMust) {
  const Model model = folder("qwen3-tiny"), fewer = folder("mistral-tiny");
  ASSERT_LT(fewer.config.vocab, model.config.vocab);
  for (const auto& [texts, positions] :
       {std::pair<int64_t, int64_t>(3, kPositions), std::pair<int64_t, int64_t>(1, 50)}) {
    ModelDrafts small(fewer, texts, positions, &kCheap), same(model, texts, positions, &kCheap);
    expect_same_texts(model, batching(&small), "fewer tokens ");
    EXPECT_GT(expect_same_texts(model, batching(&same), "fewer places ").drafted_right, 0u);
    ModelDrafts large(model, texts, positions, &kCheap);
    expect_same_texts(fewer, batching(&large), "more tokens ");
  }
}

TEST_F(Drafts, AreMadeForWhoWantsThem) {
  const Model model = synthetic();
  ModelDrafts drafts(model, 1, kPositions, &kCheap);
  Scheduler scheduler(model, SessionOptions{kPositions}, &drafts);
  TextRequest wanted = requests(model, 1)[0];
  const std::vector<int32_t> text = test::plain_text(model, wanted, kPositions);
  for (const int64_t most : {-1, 0, 1, 2}) {
    wanted.most_drafted = most;
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(wanted, sink);
    const uint64_t before = scheduler.counts().steps;
    finish(scheduler);
    EXPECT_EQ(sink->tokens, text);
    ASSERT_TRUE(sink->end);
    EXPECT_EQ(sink->end->drafted > 0, most != 0);
    const auto steps = static_cast<int64_t>(scheduler.counts().steps - before);
    EXPECT_TRUE(most <= 0 || steps * (most + 1) >= 60) << most;
  }
}

// The second and third tokens, which are drafted, are counted over many texts from one prompt.
TEST_F(Drafts, SampledTextsAreDistributedAsWithout) {
  const Model model = folder("qwen3-tiny"), draft = folder("mistral-tiny");
  TextRequest wanted;
  wanted.prompt = {5, 9, 17, 30};
  wanted.max_tokens = 4;
  wanted.sampler.temperature = 1.5f;
  wanted.sampler.top_k = 3;
  wanted.sampler.top_p = 1;
  wanted.sampler.min_p = 0;
  // Returns what the options make of logits.
  const auto probabilities = [&](const std::vector<int32_t>& text) {
    Session session(model, {kPositions});
    const std::vector<float> logits = test::all_logits(session, text).back();
    std::vector<std::pair<float, int32_t>> best;
    for (size_t i = 0; i < logits.size(); ++i)
      best.emplace_back(logits[i], static_cast<int32_t>(i));
    std::sort(best.rbegin(), best.rend());
    best.resize(3);
    std::map<int32_t, double> result;
    double total = 0;
    for (const auto& [logit, id] : best)
      total += result[id] = std::exp((logit - best[0].first) / 1.5);
    for (auto& [id, weight] : result)
      weight /= total;
    return result;
  };
  std::map<std::vector<int32_t>, double> expected;
  for (const auto& [first, p] : probabilities(wanted.prompt)) {
    std::vector<int32_t> text = wanted.prompt;
    text.push_back(first);
    for (const auto& [second, q] : probabilities(text)) {
      text.resize(5);
      text.push_back(second);
      for (const auto& [third, r] : probabilities(text))
        expected[{first, second, third}] = p * q * r;
    }
  }
  ASSERT_EQ(expected.size(), 27u);
  for (const Model* of : {&model, &draft}) {
    ModelDrafts drafts(*of, 1, kPositions, &kCheap);
    Scheduler scheduler(model, SessionOptions{kPositions}, &drafts);
    constexpr int kTexts = 3000;
    std::map<std::vector<int32_t>, int> seen;
    int64_t drafted = 0;
    for (int i = 0; i < kTexts; ++i) {
      wanted.sampler.seed = static_cast<uint64_t>(i) * 0x2545F4914F6CDD1Dull;
      const auto sink = std::make_shared<Recorder>();
      scheduler.add(wanted, sink);
      finish(scheduler);
      drafted += sink->end->drafted;
      ++seen[{sink->tokens.begin(), sink->tokens.begin() + 3}];
    }
    EXPECT_GT(drafted, kTexts / 4);
    double chi = 0;
    for (const auto& [text, p] : expected) {
      const double wanted_count = p * kTexts, difference = seen[text] - wanted_count;
      chi += difference * difference / wanted_count;
    }
    EXPECT_EQ(seen.size(), expected.size()) << "there is no other text";
    EXPECT_LT(chi, 54.1) << "26 degrees of freedom: more by chance once in 1000 times";
  }
}

TEST_F(Drafts, ASourceThatFailsEndsNoText) {
  const Model model = synthetic();
  for (const int calls : {0, 5}) {
    ModelDrafts drafts(model, 3, kPositions, &kCheap);
    Failing failing(drafts, calls);
    expect_same_texts(model, batching(&failing), "failing ");
  }
}

}  // namespace
}  // namespace walsh
