// Tests texts whose tokens the model's own layer guesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "generate/ahead_drafts.h"
#include "model/ahead.h"
#include "schedule/scheduler.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using test::AheadModel;
using test::finish;
using test::kAheadModels;
using test::Recorder;
using testing::ElementsAreArray;

constexpr int64_t kPositions = 200;
// Guessing is always worth it.
constexpr DraftCosts kCheap = {0.02, 0.02};

class DraftsAhead : public testing::Test {
 protected:
  AheadModel load(const std::string& name, const char* cache = "f16") {
    CheckpointSource source = CheckpointSource::open(test::ahead_folder(name));
    LoadOptions options;
    options.pool = &pool_;
    options.cache = {&get_cache_type(cache), &get_cache_type(cache), 32};
    return AheadModel(source, options);
  }

  static SchedulerOptions batching(DraftSource* drafts) {
    SchedulerOptions options;
    options.positions = kPositions;
    options.running = 3;
    options.step_tokens = 50;
    options.share_prefixes = false;  // with coded caches a shared beginning changes what follows
    options.drafts = drafts;
    return options;
  }

  // Returns greedy texts and sampled ones, with prompts that are read in pieces.
  static std::vector<TextRequest> requests(const Model& model) {
    std::vector<TextRequest> all;
    for (uint64_t i = 0; i < 6; ++i) {
      TextRequest& wanted = all.emplace_back();
      wanted.prompt =
          test::random_tokens(static_cast<int64_t>(3 + 40 * (i % 3)), model.config.vocab, i);
      wanted.max_tokens = 60;
      wanted.sampler.temperature = i % 2 == 0 ? 0.0f : 0.6f;
      wanted.sampler.seed = i;
      if (i % 4 == 3) wanted.logprobs = 1;
    }
    return all;
  }

  static SchedulerCounts expect_same_texts(const Model& model, const SchedulerOptions& options,
                                           const std::string& what) {
    Scheduler scheduler(model, options);
    const std::vector<TextRequest> wanted = requests(model);
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

TEST_F(DraftsAhead, ChangeNoText) {
  uint64_t wrong = 0;
  for (const char* name : kAheadModels) {
    const AheadModel models = load(name);
    AheadDrafts drafts(models.layer, models.desc, 3, kPositions, 8, &kCheap);
    const SchedulerCounts counts = expect_same_texts(models.model, batching(&drafts), name);
    EXPECT_GT(counts.drafted_right, counts.drafted_tokens / 4) << name;
    wrong += counts.drafted_tokens - counts.drafted_right;
  }
  EXPECT_GT(wrong, 0u);
}

TEST_F(DraftsAhead, ChangeNoTextWithAnyCache) {
  for (const char* cache : {"q8_0", "tq3_0", "kt2"}) {
    for (const char* name : {"qwen35", "deepseek-v3"}) {
      const AheadModel models = load(name, cache);
      AheadDrafts drafts(models.layer, models.desc, 3, kPositions, 8, &kCheap);
      EXPECT_GT(expect_same_texts(models.model, batching(&drafts), cache).drafted_right, 0u);
    }
  }
}

// The layer stands at other positions than the model behind an image whose rows are a grid.
TEST_F(DraftsAhead, ChangeNoTextBehindAnImage) {
  for (const char* cache : {"f16", "q8_0", "kt2"}) {
    const AheadModel models = load("qwen35", cache);
    const auto texts = [&](DraftSource* drafts, SchedulerCounts& counts) {
      Scheduler scheduler(models.model, batching(drafts));
      std::vector<std::shared_ptr<Recorder>> sinks;
      for (TextRequest& wanted : requests(models.model)) {
        if (wanted.prompt.size() < 20) continue;
        PromptImage image;
        image.position = 2;
        image.rows = 12;
        image.columns = 4;
        image.hash = "a";
        auto values = std::make_shared<std::vector<float>>();
        for (int64_t i = 0; i < image.rows * models.model.config.hidden; ++i)
          values->push_back(0.1F * static_cast<float>(i * i % 19 - 9));
        image.values = std::move(values);
        wanted.images = {std::move(image)};
        sinks.push_back(std::make_shared<Recorder>());
        scheduler.add(wanted, sinks.back());
        scheduler.step();
      }
      finish(scheduler);
      counts = scheduler.counts();
      std::vector<std::vector<int32_t>> result;
      for (const auto& sink : sinks)
        result.push_back(sink->tokens);
      return result;
    };
    SchedulerCounts alone, guessed;
    const auto expected = texts(nullptr, alone);
    AheadDrafts drafts(models.layer, models.desc, 3, kPositions, 8, &kCheap);
    EXPECT_EQ(texts(&drafts, guessed), expected) << cache;
    EXPECT_GT(guessed.drafted_right, 0u) << cache;
  }
}

// Texts have a common beginning, which the model reads once; others have to wait for memory and
// begin again.
TEST_F(DraftsAhead, ChangeNoTextWherePrefixesAreShared) {
  const AheadModel models = load("glm4-moe");
  AheadDrafts drafts(models.layer, models.desc, 2, kPositions, 8, &kCheap);
  SchedulerOptions options = batching(&drafts);
  options.running = 4;
  options.cache_positions = 512;
  options.share_prefixes = true;
  Scheduler scheduler(models.model, options);
  std::vector<TextRequest> wanted = requests(models.model);
  for (TextRequest& request : wanted)
    request.prompt.insert(request.prompt.begin(), 30, 7);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (const TextRequest& request : wanted) {
      sinks.push_back(std::make_shared<Recorder>());
      scheduler.add(request, sinks.back());
    }
    finish(scheduler);
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_THAT(sinks[i]->tokens,
                  ElementsAreArray(test::plain_text(models.model, wanted[i], kPositions)));
  }
  EXPECT_GT(scheduler.counts().cached_tokens, 0u);
  EXPECT_GT(scheduler.counts().drafted_right, 0u);
}

// What the layer knows of a text does not depend on the pieces in which it was read, nor on other
// texts that it has guessed before.
TEST_F(DraftsAhead, OfATextAreTheSameAgain) {
  const AheadModel models = load("qwen35");
  AheadDrafts drafts(models.layer, models.desc, 1, kPositions, 8, &kCheap);
  std::vector<int64_t> right;
  const std::vector<TextRequest> wanted = requests(models.model);
  for (const int64_t rows : {int64_t{7}, int64_t{1000}}) {
    for (const size_t i : {size_t{2}, size_t{4}}) {
      SchedulerOptions options = batching(&drafts);
      options.running = 1;
      options.step_tokens = rows;
      Scheduler scheduler(models.model, options);
      const auto sink = std::make_shared<Recorder>();
      scheduler.add(wanted[i], sink);
      finish(scheduler);
      if (i == 2) right.push_back(sink->end->drafted_right);
    }
  }
  EXPECT_GT(right[0], 0);
  EXPECT_EQ(right[0], right[1]);
}

TEST_F(DraftsAhead, HaveAtMostAsManyTokensAsAskedFor) {
  const AheadModel models = load("deepseek-v3");
  for (const int64_t most : {1, 2}) {
    AheadDrafts drafts(models.layer, models.desc, 1, kPositions, most, &kCheap);
    Scheduler scheduler(models.model, SessionOptions{kPositions}, &drafts);
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(requests(models.model)[0], sink);
    finish(scheduler);
    const auto steps = static_cast<int64_t>(scheduler.counts().steps);
    EXPECT_GT(sink->end->drafted_right, 0);
    EXPECT_GE(steps * (most + 1), 60);
  }
}

// The first three tokens, of which the second and third are drafted, are counted over many texts
// from one prompt.
TEST_F(DraftsAhead, SampledTextsAreDistributedAsWithout) {
  const AheadModel models = load("glm4-moe");
  AheadDrafts drafts(models.layer, models.desc, 1, kPositions, 8, &kCheap);
  Scheduler scheduler(models.model, SessionOptions{kPositions}, &drafts);
  TextRequest wanted;
  wanted.prompt = {5, 9, 17, 30};
  wanted.max_tokens = 4;
  wanted.sampler.temperature = 1.5f;
  wanted.sampler.top_k = 2;
  wanted.sampler.top_p = 1;
  wanted.sampler.min_p = 0;
  constexpr int kTexts = 1500;
  std::map<std::vector<int32_t>, int> seen;
  int64_t drafted = 0, right = 0;
  for (int i = 0; i < kTexts; ++i) {
    wanted.sampler.seed = static_cast<uint64_t>(i) * 0x2545F4914F6CDD1Dull;
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(wanted, sink);
    finish(scheduler);
    drafted += sink->end->drafted;
    right += sink->end->drafted_right;
    ++seen[{sink->tokens.begin(), sink->tokens.begin() + 3}];
  }
  EXPECT_GT(right, 0);
  EXPECT_LT(right, drafted);
  // The model's logits give the probabilities of texts: of two tokens each time.
  double square = 0;
  int known = 0;
  for (int path = 0; path < 8; ++path) {
    std::vector<int32_t> text = wanted.prompt;
    double p = 1;
    for (int step = 0; step < 3; ++step) {
      Session session(models.model, {kPositions});
      const std::vector<float> logits = test::all_logits(session, text).back();
      std::vector<std::pair<float, int32_t>> best;
      for (size_t i = 0; i < logits.size(); ++i)
        best.emplace_back(logits[i], static_cast<int32_t>(i));
      std::partial_sort(best.begin(), best.begin() + 2, best.end(), std::greater<>());
      const double second = 1 / (1 + std::exp((best[0].first - best[1].first) / 1.5));
      const bool other = (path >> step & 1) != 0;
      p *= other ? second : 1 - second;
      text.push_back(best[other ? 1 : 0].second);
    }
    const int count = seen[{text.end() - 3, text.end()}];
    known += count;
    const double mean = p * kTexts;
    square += (count - mean) * (count - mean) / mean;
  }
  EXPECT_EQ(known, kTexts);
  EXPECT_LT(square, 24.3);  // one of 1,000 with seven degrees of freedom
}

}  // namespace
}  // namespace walsh
