#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "walsh/error.h"

namespace walsh {
namespace {

// Everything off but what a test turns on.
SamplerOptions plain() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

// Share of each token in many draws.
std::map<int32_t, double> frequencies(const SamplerOptions& options,
                                      const std::vector<float>& logits) {
  constexpr int kDraws = 20000;
  Sampler sampler(options);
  std::map<int32_t, double> shares;
  for (int i = 0; i < kDraws; ++i)
    shares[sampler.sample(logits)] += 1.0 / kDraws;
  return shares;
}

std::vector<float> log_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities)
    logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

TEST(Sampler, TemperatureZeroTakesTheBestAndOfEqualsTheLowest) {
  SamplerOptions o = plain();
  o.temperature = 0;
  Sampler sampler(o);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 2, 5}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-3, -1, -2}), 1);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const auto shares = frequencies(plain(), log_of({0.5, 0.3, 0.2}));
  EXPECT_NEAR(shares.at(0), 0.5, 0.015);
  EXPECT_NEAR(shares.at(1), 0.3, 0.015);
  EXPECT_NEAR(shares.at(2), 0.2, 0.015);
}

TEST(Sampler, TemperatureScalesTheLogits) {
  SamplerOptions o = plain();
  o.temperature = 0.5f;  // squares the probabilities: 0.64 / (0.64 + 0.04)
  EXPECT_NEAR(frequencies(o, log_of({0.8, 0.2})).at(0), 0.941, 0.01);
}

TEST(Sampler, TopKKeepsTheBestAndOfEqualsTheLowest) {
  SamplerOptions o = plain();
  o.top_k = 2;
  const auto shares = frequencies(o, {0, 4, 4, 4});
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(1), 0.5, 0.02);
  EXPECT_NEAR(shares.at(2), 0.5, 0.02);
  o.top_k = 100;
  EXPECT_EQ(frequencies(o, {4, 4, 4}).size(), 3u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  SamplerOptions o = plain();
  o.top_p = 0.75f;
  EXPECT_EQ(frequencies(o, log_of({0.15, 0.5, 0.3, 0.05})).size(), 2u);
  o.top_p = 0.85f;
  EXPECT_EQ(frequencies(o, log_of({0.15, 0.5, 0.3, 0.05})).size(), 3u);
  o.top_p = 0;
  EXPECT_EQ(frequencies(o, log_of({0.15, 0.5, 0.35})).size(), 1u);
}

TEST(Sampler, TopPSeesTheProbabilitiesAfterTopK) {
  SamplerOptions o = plain();
  o.top_k = 2;
  o.top_p = 0.6f;  // of the two kept, the best has 0.4 / 0.65 = 0.615
  EXPECT_EQ(frequencies(o, log_of({0.4, 0.25, 0.2, 0.15})).size(), 1u);
}

TEST(Sampler, MinPIsRelativeToTheBestAndBeforeTheTemperature) {
  SamplerOptions o = plain();
  o.min_p = 0.4f;
  o.temperature = 100;  // would lift the last one above 0.4 if it came first
  EXPECT_EQ(frequencies(o, log_of({0.5, 0.3, 0.15})).size(), 2u);
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.repeat_penalty = 2;
  Sampler sampler(o);
  sampler.accept(0);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 1.9f}), 0) << "4 / 2 once, not 4 / 4";
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 2.1f}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f}), 1) << "-1 * 2 is worse";
}

TEST(Sampler, RepeatPenaltySeesTheLastTokensOnly) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.repeat_penalty = 10;
  o.repeat_last_n = 2;
  Sampler sampler(o);
  for (int32_t token : {0, 1, 2})
    sampler.accept(token);
  EXPECT_EQ(sampler.sample(std::vector<float>{5, 6, 6}), 0);
  o.repeat_last_n = -1;
  Sampler all(o);
  for (int32_t token : {0, 1, 2, 3, 4})
    all.accept(token);
  EXPECT_EQ(all.sample(std::vector<float>{5, 6, 6, 5, 5, 1}), 5);
}

TEST(Sampler, RepeatPenaltyIsForAllTokensUnlessALimitIsGiven) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.repeat_penalty = 10;
  const auto chosen = [&](int repeat_last_n) {
    o.repeat_last_n = repeat_last_n;
    Sampler sampler(o);
    sampler.accept(0);
    for (int i = 0; i < 500; ++i)
      sampler.accept(1 + i % 2);
    return sampler.sample(std::vector<float>{5, 4, 4, 1});
  };
  EXPECT_EQ(SamplerOptions().repeat_last_n, -1) << "as transformers";
  EXPECT_EQ(chosen(-1), 3);
  EXPECT_EQ(chosen(501), 3);
  EXPECT_EQ(chosen(500), 0) << "0 came before the last 500";
  EXPECT_EQ(chosen(1), 0);
  EXPECT_EQ(chosen(0), 0) << "0: no penalty";
}

// A window that slides over many repetitions, against counting its tokens again every time.
TEST(Sampler, TheWindowOfTheRepeatPenaltySlides) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.repeat_penalty = 3;
  o.repeat_last_n = 7;
  Sampler sampler(o);
  std::vector<int32_t> history;
  Random random(5);
  for (int step = 0; step < 300; ++step) {
    std::vector<float> logits = {3.1f, 3.2f, 3.3f, 3.4f, 3.5f, 3.0f};
    const size_t first = history.size() > 7 ? history.size() - 7 : 0;
    std::vector<bool> seen(logits.size());
    for (size_t i = first; i < history.size(); ++i)
      seen[static_cast<size_t>(history[i])] = true;
    int32_t best = -1;
    for (int32_t i = 0; i < 6; ++i) {
      const auto at = [&](int32_t t) {
        return logits[static_cast<size_t>(t)] / (seen[static_cast<size_t>(t)] ? 3 : 1);
      };
      if (best < 0 || at(i) > at(best)) best = i;
    }
    ASSERT_EQ(sampler.sample(logits), best) << step;
    history.push_back(static_cast<int32_t>(random.below(6)));
    sampler.accept(history.back());
  }
}

TEST(Sampler, SameSeedSameTokens) {
  const std::vector<float> logits(50, 1.0f);
  const auto draw = [&](uint64_t seed) {
    SamplerOptions o = plain();
    o.seed = seed;
    Sampler sampler(o);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 20; ++i)
      tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Sampler, IgnoresNanAndRefusesLogitsWithoutAFiniteOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (float temperature : {0.0f, 1.0f}) {
    SamplerOptions o = plain();
    o.temperature = temperature;
    Sampler sampler(o);
    EXPECT_EQ(sampler.sample(std::vector<float>{nan, -inf, 2}), 2);
    EXPECT_THROW(sampler.sample(std::vector<float>{nan, -inf}), Error);
    EXPECT_THROW(sampler.sample(std::vector<float>{}), Error);
  }
}

TEST(Sampler, AnInfiniteLogitIsChosen) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float temperature : {0.0f, 1.0f}) {
    for (float keep : {0.0f, 0.5f, 1.0f}) {
      SamplerOptions o = plain();
      o.temperature = temperature;
      o.top_p = keep;
      o.min_p = 1 - keep;
      Sampler sampler(o);
      for (int i = 0; i < 10; ++i)
        EXPECT_EQ(sampler.sample(std::vector<float>{1, 2, inf, 3, inf}), 2) << keep;
    }
  }
}

TEST(Sampler, APenaltyThatOverflowsStillGivesAToken) {
  SamplerOptions o = plain();
  o.repeat_penalty = 1e-30f;
  Sampler sampler(o);
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 1e10f, 2}), 1) << "1e10 / 1e-30 is infinite";
  o.repeat_penalty = 1000;
  Sampler lower(o);
  lower.accept(1);
  EXPECT_EQ(lower.sample(std::vector<float>{-3e38f, -3e38f}), 0) << "-3e38 * 1000 is infinite";
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [](auto change) {
    SamplerOptions o;
    change(o);
    EXPECT_THROW(Sampler{o}, Error);
  };
  refused([](SamplerOptions& o) { o.temperature = -1; });
  refused([&](SamplerOptions& o) { o.temperature = nan; });
  refused([](SamplerOptions& o) { o.top_k = -1; });
  refused([](SamplerOptions& o) { o.top_p = 1.5f; });
  refused([](SamplerOptions& o) { o.min_p = -0.1f; });
  refused([](SamplerOptions& o) { o.repeat_penalty = 0; });
  refused([](SamplerOptions& o) { o.repeat_last_n = -2; });
}

TEST(Sampler, BiasesAndOpenAisPenaltiesChangeLogits) {
  SamplerOptions o;
  o.temperature = 0;
  const std::vector<float> logits = {1.0f, 2.0f, 3.0f, 0.0f};
  EXPECT_EQ(Sampler(o, {{2, -100}}).sample(logits), 1);
  EXPECT_EQ(Sampler(o, {{3, 5}, {99, 100}}).sample(logits), 3);
  o.presence_penalty = 1.5f;
  Sampler once(o);
  once.read(2);
  EXPECT_EQ(once.sample(logits), 2) << "the prompt does not count";
  once.accept(2);
  EXPECT_EQ(once.sample(logits), 1);
  once.accept(2);
  once.accept(1);
  EXPECT_EQ(once.sample(logits), 2) << "how often does not matter";
  o.presence_penalty = 0;
  o.frequency_penalty = 0.8f;
  Sampler often(o);
  often.accept(2);
  EXPECT_EQ(often.sample(logits), 2);
  often.accept(2);
  EXPECT_EQ(often.sample(logits), 1);
  o.frequency_penalty = 1e9f;
  EXPECT_THROW(Sampler{o}, Error);
}

}  // namespace
}  // namespace walsh
