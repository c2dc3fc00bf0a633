#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/random.h"
#include "generate/sampling_options.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Everything is off except what a test turns on.
SamplerOptions plain() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

// Returns the share of each token in many draws.
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

// Partial sorting gives the tokens that sorting everything would give.
TEST(Sampler, DrawsAreThoseOfAllCandidatesInTheirOrder) {
  Random logits_random(5);
  for (const auto& [temperature, top_p, min_p] : {std::tuple(1.0f, 1.0f, 0.0f),
                                                  {3.0f, 1.0f, 0.0f},
                                                  {8.0f, 0.97f, 0.0f},
                                                  {0.7f, 0.9f, 0.0f},
                                                  {5.0f, 1.0f, 0.3f},
                                                  {2.0f, 0.8f, 0.1f}}) {
    SamplerOptions o = plain();
    o.temperature = temperature;
    o.top_p = top_p;
    o.min_p = min_p;
    o.seed = 3;
    set_sampler_order(o, "top_p;min_p;temperature");
    Sampler sampler(o);
    Random draws(o.seed);
    for (int round = 0; round < 60; ++round) {
      std::vector<float> logits(700);
      for (float& logit : logits)
        logit = std::round(40 * static_cast<float>(logits_random.uniform())) / 4;
      logits[round] = -std::numeric_limits<float>::infinity();
      std::vector<std::pair<double, int32_t>> all;  // minus the logit, id
      for (size_t i = 0; i < logits.size(); ++i)
        all.emplace_back(-logits[i], static_cast<int32_t>(i));
      std::sort(all.begin(), all.end());
      const double best = all[0].first;
      const auto keep = [&](size_t count) { all.resize(count); };
      double total = 0, sum = 0;
      for (const auto& [logit, id] : all)
        total += std::exp(best - logit);
      size_t kept = 0;
      while (top_p < 1 && sum < top_p * total)
        sum += std::exp(best - all[kept++].first);
      if (top_p < 1) keep(kept);
      if (min_p > 0) {
        const double least = std::log(double{min_p});
        std::erase_if(all, [&](const auto& c) { return best - c.first < least; });
      }
      total = 0;
      for (const auto& [logit, id] : all)
        total += std::exp((best - logit) / temperature);
      double left = draws.uniform() * total;
      size_t chosen = 0;
      while ((left -= std::exp((best - all[chosen].first) / temperature)) >= 0)
        ++chosen;
      ASSERT_EQ(sampler.sample(logits), all[chosen].second) << temperature << " " << round;
    }
  }
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

// A window slides over many repetitions; its tokens are counted again every time for comparison.
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

// Devices choose so, too: the texts of both would part otherwise.
TEST(Sampler, AnInfiniteLogitTakesNoDraw) {
  SamplerOptions o = plain();
  o.seed = 5;
  Sampler first(o), second(o);
  const std::vector<float> even(1000, 0.0f);
  std::vector<float> infinite = even;
  infinite[7] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first.sample(infinite), 7);
  EXPECT_EQ(first.sample(even), second.sample(even));
}

TEST(Sampler, APenaltyThatOverflowsStillGivesAToken) {
  SamplerOptions o = plain();
  o.repeat_penalty = 1e-5f;
  Sampler sampler(o);
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 1e38f, 2}), 1) << "1e38 / 1e-5 is infinite";
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
  refused([](SamplerOptions& o) { o.top_k = -2; });
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
  SamplerOptions both = o;
  both.presence_penalty = 1;
  both.repeat_penalty = 2;
  Sampler divided(both);
  divided.accept(2);
  EXPECT_EQ(divided.sample(std::vector<float>{0.8f, 0.0f, 3.0f}), 0)
      << "3 / 2 - 1, not (3 - 1) / 2";
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

TEST(Sampler, TopNSigmaKeepsWhatIsNearTheBestLogit) {
  SamplerOptions o = plain();
  o.top_n_sigma = 1;  // mean 2, deviation sqrt(5): at least 6 - 2.24
  const auto shares = frequencies(o, {6, 4, 1, 1, 0, 0});
  EXPECT_EQ(shares.size(), 2u);
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(frequencies(o, {6, 4, 1, 1, 0, 0, none, none}).size(), 2u)
      << "what cannot be chosen does not count";
}

TEST(Sampler, TypicalPKeepsTheUsualSurprise) {
  SamplerOptions o = plain();
  o.typical_p = 0.3f;
  // The entropy is 1.22: surprises 0.69, 1.61, 1.61, 2.30 are 0.53, 0.39, 0.39 and 1.08 away.
  const std::vector<float> logits = log_of({0.5, 0.2, 0.2, 0.1});
  const auto usual = frequencies(o, logits);
  EXPECT_EQ(usual.size(), 2u) << "0.2 is not more than 0.3";
  EXPECT_FALSE(usual.contains(0)) << "the best token is not the most usual one";
  EXPECT_NEAR(usual.at(1), 0.5, 0.015);
  o.typical_p = 0.5f;
  EXPECT_NEAR(frequencies(o, logits).at(0), 0.5 / 0.9, 0.015);
}

TEST(Sampler, XtcDropsAllAboveTheThresholdButTheLast) {
  SamplerOptions o = plain();
  o.xtc_probability = 1;
  o.xtc_threshold = 0.15f;
  const std::vector<float> logits = log_of({0.4, 0.3, 0.2, 0.1});
  const auto always = frequencies(o, logits);
  EXPECT_EQ(always.size(), 2u);
  EXPECT_NEAR(always.at(2), 2.0 / 3, 0.015);
  o.xtc_probability = 0.5f;
  EXPECT_NEAR(frequencies(o, logits).at(0), 0.2, 0.015) << "in half of the draws";
  o.xtc_threshold = 0.35f;  // one token alone is above
  EXPECT_EQ(frequencies(o, logits).size(), 4u);
}

TEST(Sampler, XtcGoesOnWhereItWas) {
  SamplerOptions o = plain();
  o.xtc_probability = 0.5f;
  const std::vector<float> logits = log_of({0.4, 0.3, 0.2, 0.1});
  Sampler whole(o);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i)
    tokens.push_back(whole.sample(logits));
  Sampler rest(after_draws(o, 20));
  for (int i = 20; i < 40; ++i)
    EXPECT_EQ(rest.sample(logits), tokens[static_cast<size_t>(i)]);
}

// Returns the penalty on the logit of `token` after a text.
double penalty_of(const SamplerOptions& options, const std::vector<int32_t>& text, int32_t token) {
  DryHistory history(options, nullptr);
  for (const int32_t t : text)
    history.read(t);
  const auto penalties = history.penalties();
  const auto found = penalties.find(token);
  return found == penalties.end() ? 0 : found->second;
}

TEST(Sampler, DryPunishesWhatWouldRepeatByItsLength) {
  SamplerOptions o = plain();
  o.dry_multiplier = 0.8f;
  o.dry_base = 2;
  EXPECT_NEAR(penalty_of(o, {1, 2, 3, 9, 1, 2}, 3), 0.8, 1e-6) << "two tokens are allowed";
  EXPECT_NEAR(penalty_of(o, {0, 1, 2, 3, 9, 0, 1, 2}, 3), 1.6, 1e-6);
  EXPECT_EQ(penalty_of(o, {2, 3, 9, 2}, 3), 0) << "one is too short";
  EXPECT_EQ(penalty_of(o, {1, 2, 3, 9, 1, 2}, 9), 0);
  EXPECT_NEAR(penalty_of(o, {1, 2, 3, 0, 1, 2, 3, 5, 0, 1, 2}, 3), 1.6, 1e-6) << "the longest";
  EXPECT_NEAR(penalty_of(o, {7, 7, 7, 7}, 7), 1.6, 1e-6) << "overlapping";
  o.dry_penalty_last_n = 4;
  EXPECT_EQ(penalty_of(o, {1, 2, 3, 9, 1, 2}, 3), 0) << "too long ago";
  o.dry_penalty_last_n = 0;
  EXPECT_EQ(penalty_of(o, {1, 2, 3, 9, 1, 2}, 3), 0);
  o.dry_penalty_last_n = -1;
  const std::vector<int32_t> same(5000, 7);
  EXPECT_TRUE(std::isfinite(penalty_of(o, same, 7)));

  o.temperature = 0;
  o.dry_multiplier = 4;
  Sampler sampler(o);
  for (const int32_t t : {1, 2, 3, 0, 1, 2})
    sampler.read(t);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 0, 3, 5}), 2);
}

TEST(Sampler, StepsAreMadeInTheOrderThatIsAskedFor) {
  SamplerOptions o = plain();
  o.temperature = 2;
  o.top_p = 0.75f;
  // The best probability is 0.49 of the sum of all square roots.
  const std::vector<float> logits = log_of({0.64, 0.2, 0.16});
  EXPECT_EQ(frequencies(o, logits).size(), 2u);
  o.top_p = 0.6f;
  EXPECT_EQ(frequencies(o, logits).size(), 1u);
  set_sampler_order(o, "temperature;top_p");
  EXPECT_EQ(frequencies(o, logits).size(), 2u);
  EXPECT_EQ(sampler_order(o), "temperature;top_p");

  o = plain();
  o.top_k = 1;
  set_sampler_order(o, "temperature");
  EXPECT_EQ(frequencies(o, logits).size(), 3u) << "what is not named is not done";
  set_sampler_order(o, "top_k;penalties");
  o.top_k = 2;
  o.repeat_penalty = 100;
  Sampler sampler(o);
  sampler.read(0);
  int third = 0;
  for (int i = 0; i < 1000; ++i)
    third += sampler.sample(std::vector<float>{5, 4, 3}) == 2;
  EXPECT_EQ(third, 0) << "the penalty comes behind the choice of two";
  EXPECT_THROW(set_sampler_order(o, "top_k;bogus"), Error);
  EXPECT_THROW(set_sampler_order(o, "top_k;top_k"), Error);
}

// Returns the share of each token, from the definition.
std::map<int32_t, double> dynamic_shares(const SamplerOptions& o,
                                         const std::vector<float>& logits) {
  const auto shares = [&](double temperature) {
    std::map<int32_t, double> all;
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      total += all[static_cast<int32_t>(i)] = std::exp(logits[i] / temperature);
    for (auto& [token, share] : all)
      share /= total;
    return all;
  };
  double entropy = 0;
  for (const auto& [token, share] : shares(1))
    entropy -= share * std::log(share);
  const double part = entropy / std::log(static_cast<double>(logits.size()));
  const double least = std::max(0.0, static_cast<double>(o.temperature - o.dynatemp_range));
  return shares(least + (o.temperature + o.dynatemp_range - least) *
                            std::pow(part, static_cast<double>(o.dynatemp_exponent)));
}

TEST(Sampler, TheTemperatureMayFollowTheEntropy) {
  for (const auto& logits : {std::vector<float>{2, 1, 0}, std::vector<float>{4, 0.5f, 0.5f, -1}})
    for (const float exponent : {0.5f, 1.0f, 3.0f}) {
      SamplerOptions o = plain();
      o.temperature = 1.1f;
      o.dynatemp_range = 0.7f;
      o.dynatemp_exponent = exponent;
      const auto expected = dynamic_shares(o, logits);
      const auto found = frequencies(o, logits);
      for (const auto& [token, share] : expected)
        EXPECT_NEAR(found.contains(token) ? found.at(token) : 0, share, 0.02) << token;
    }
  SamplerOptions o = plain();
  o.temperature = 0;
  EXPECT_EQ(frequencies(o, {2, 1, 0}).size(), 1u);
  o.dynatemp_range = 2;
  EXPECT_EQ(frequencies(o, {2, 1, 0}).size(), 3u) << "0 to 2";
  EXPECT_FALSE(on_devices(o));
}

TEST(Sampler, DevicesTakeTheUsualStepsOnly) {
  SamplerOptions o;
  EXPECT_TRUE(on_devices(o));
  const auto refuses = [](auto change) {
    SamplerOptions changed;
    change(changed);
    return !on_devices(changed);
  };
  EXPECT_TRUE(refuses([](SamplerOptions& c) { c.typical_p = 0.9f; }));
  EXPECT_TRUE(refuses([](SamplerOptions& c) { c.top_n_sigma = 1; }));
  EXPECT_TRUE(refuses([](SamplerOptions& c) { c.xtc_probability = 0.1f; }));
  EXPECT_TRUE(refuses([](SamplerOptions& c) { c.dry_multiplier = 1; }));
  EXPECT_TRUE(refuses([](SamplerOptions& c) { c.presence_penalty = -1; }));
  EXPECT_TRUE(refuses([](SamplerOptions& c) { set_sampler_order(c, "top_k;temperature"); }));
  EXPECT_FALSE(refuses([](SamplerOptions& c) { c.temperature = 2; }));
  EXPECT_FALSE(refuses([](SamplerOptions& c) { c.dry_base = 2; })) << "without a multiplier";
  EXPECT_TRUE(refuses([](SamplerOptions& c) {
    set_sampler_order(c, "temperature;penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc");
  }));
}

}  // namespace
}  // namespace walsh
