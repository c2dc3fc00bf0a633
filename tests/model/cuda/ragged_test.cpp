#include "../ragged.h"

#include <gtest/gtest.h>

#include "gpu_models.h"
#include "short_run.h"

namespace walsh {
namespace {

using test::divergence;
using test::random_tokens;

class CudaRaggedBatch : public test::GpuTest, public testing::WithParamInterface<const char*> {
 protected:
  Model load_with(const char* cache) {
    SyntheticSource source = test::synthetic("tq3", "f16");
    return load(source, gpu_, ActivationMode::i8x2,
                {&get_cache_type(cache), &get_cache_type(cache), 32});
  }
};

// Returns the tolerance for the rounding of other kernels and, with coded caches, for the codes
// that depend on it.
double bound(std::string_view cache) {
  return cache == "f16" ? 1e-3 : 2e-2;
}

TEST_P(CudaRaggedBatch, GivesEverySequenceWhatItGetsAlone) {
  const Model model = load_with(GetParam());
  SessionOptions options;
  options.max_positions = 300;
  options.sequences = 6;
  options.cache_positions = 12 * kGpuPagePositions;  // of 30
  test::RaggedBatches batches(model, options, 1);
  batches.run(test::times(60, 12));
  EXPECT_GT(batches.forks(), 0);
  for (const auto& result : batches.results()) {
    const auto expected = test::RaggedBatches::alone(model, 300, result.history);
    EXPECT_LT(divergence({expected}, {result.logits}), bound(GetParam()));
  }
}

// Many rows of a sequence read keys and values of heads, few rows the latents in the cache. Experts
// whose scores are nearly equal may be exchanged.
class CudaRaggedLatents : public test::GpuTest {};
TEST_F(CudaRaggedLatents, GiveEverySequenceWhatItGetsAlone) {
  const Format &tq3 = get_format("tq3"), &f16 = get_format("f16");
  SyntheticSource source("tiny-latent", {&tq3, &f16, &f16});
  const Model model = load(source, gpu_, ActivationMode::i8x2);
  SessionOptions options;
  options.max_positions = 300;
  options.sequences = 6;
  test::RaggedBatches batches(model, options, 2);
  batches.run(test::times(60, 12));
  EXPECT_GT(batches.forks(), 0);
  for (const auto& result : batches.results()) {
    const auto expected = test::RaggedBatches::alone(model, 300, result.history);
    EXPECT_LT(divergence({expected}, {result.logits}), 1e-1);
  }
}

// Sequences join while others are being continued, one step ahead of the host, and leave.
TEST_P(CudaRaggedBatch, ChoosesForSequencesThatComeAndGo) {
  const Model model = load_with(GetParam());
  constexpr size_t kTexts = 3;
  constexpr size_t kTokens = 9;
  SessionOptions options;
  options.max_positions = 200;
  options.sequences = kTexts;
  Session session(model, options);
  ASSERT_TRUE(session.can_sample());
  SamplerOptions greedy;
  greedy.temperature = 0;
  std::vector<std::vector<int32_t>> texts;
  std::vector<size_t> prompts;
  for (size_t s = 0; s < kTexts; ++s) {
    const int64_t length = 1 + 60 * static_cast<int64_t>(s);
    texts.push_back(random_tokens(length, 500, s));
    prompts.push_back(texts.back().size());
  }
  std::vector<std::vector<size_t>> open;  // batches whose tokens were not taken: texts of each
  const auto take = [&] {
    const auto tokens = session.take();
    ASSERT_EQ(tokens.size(), open.front().size());
    for (size_t i = 0; i < tokens.size(); ++i)
      texts[open.front()[i]].push_back(tokens[i]);
    open.erase(open.begin());
  };
  std::vector<size_t> submitted(kTexts);
  for (size_t step = 0; step < 2 * kTexts + kTokens; ++step) {
    std::vector<SequenceTokens> batch;
    std::vector<size_t> members;
    for (size_t s = 0; s < kTexts; ++s) {
      if (step < 2 * s || submitted[s] == kTokens) continue;
      const auto sequence = static_cast<int64_t>(s);
      if (step == 2 * s) {
        if (s > 0) session.open();
        session.start_sampling(greedy, texts[s], sequence);
        batch.push_back({sequence, texts[s], 1});
      } else {
        batch.push_back({sequence, {}, 1});
      }
      ++submitted[s];
      members.push_back(s);
    }
    if (!batch.empty()) {
      session.submit(batch);
      open.push_back(members);
    }
    if (open.size() == 2 || (batch.empty() && !open.empty())) take();
  }
  while (!open.empty())
    take();
  for (size_t s = 0; s < kTexts; ++s) {
    ASSERT_EQ(texts[s].size(), prompts[s] + kTokens);
    const auto logits = test::logits_of(model, texts[s]);
    for (size_t i = prompts[s]; i < texts[s].size(); ++i) {
      const auto& row = logits[i - 1];
      const float best = *std::max_element(row.begin(), row.end());
      // Rounding may exchange tokens of nearly equal probability.
      EXPECT_GT(row[static_cast<size_t>(texts[s][i])], best - 0.2f * std::abs(best))
          << "text " << s << " token " << i;
    }
  }
}

// There are more rows than the vector kernels take at once; the third step is a replay.
TEST_P(CudaRaggedBatch, ManySequencesEqualEachAlone) {
  const Model model = load_with(GetParam());
  constexpr int64_t kSequences = 40;
  SessionOptions options;
  options.max_positions = 64;
  options.sequences = kSequences;
  Session session(model, options);
  std::vector<std::vector<int32_t>> texts;
  std::vector<SequenceTokens> batch;
  for (int64_t s = 0; s < kSequences; ++s) {
    if (s > 0) session.open();
    texts.push_back(random_tokens(1 + s % 7, 500, static_cast<uint64_t>(s)));
  }
  for (int64_t s = 0; s < kSequences; ++s)
    batch.push_back({s, texts[static_cast<size_t>(s)], 0});
  session.evaluate(batch, [](size_t, int64_t, std::span<const float>) { FAIL(); });
  test::Rows rows(static_cast<size_t>(kSequences));
  for (uint64_t step = 0; step < 4; ++step) {
    const auto next = random_tokens(kSequences, 500, 100 + step);
    test::decode(session, next, [&](size_t item, int64_t, std::span<const float> logits) {
      rows[item].assign(logits.begin(), logits.end());
    });
    for (size_t s = 0; s < texts.size(); ++s)
      texts[s].push_back(next[s]);
  }
  for (size_t s = 0; s < texts.size(); s += 9)
    EXPECT_LT(divergence({test::logits_of(model, texts[s]).back()}, {rows[s]}), bound(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(CacheTypes, CudaRaggedBatch, testing::Values("f16", "tq3_0", "kt4"));

}  // namespace
}  // namespace walsh
