// Tests a scheduler with one place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/stop.h"
#include "model/model_support.h"
#include "model/synthetic.h"
#include "schedule/scheduler.h"
#include "texts.h"

namespace walsh {
namespace {

using test::Recorder;
using testing::ElementsAreArray;

class OneText : public testing::Test {
 protected:
  OneText() {
    const auto golden = nlohmann::json::parse(
        test::read_file(std::string(WALSH_TEST_DATA) + "/goldens/mistral-tiny.json"));
    golden.at("tokens").get_to(wanted_.prompt);
    golden.at("greedy").get_to(expected_);
    wanted_.sampler.temperature = 0;
    wanted_.max_tokens = 20;
  }

  std::vector<int32_t> first(size_t count) const {
    return {expected_.begin(), expected_.begin() + static_cast<int64_t>(count)};
  }

  // Returns the text; `wanted` is asked for every token.
  Recorder run(const TextRequest& request, std::function<bool()> wanted = {}) {
    const auto sink = std::make_shared<Recorder>();
    sink->wanted = std::move(wanted);
    scheduler_.add(request, sink);
    while (!sink->finished())
      scheduler_.step_or_fail();
    return *sink;
  }

  // Returns a prompt that repeats its first tokens.
  std::vector<int32_t> repeated(int64_t count, int times) const {
    std::vector<int32_t> prompt;
    for (int i = 0; i < times; ++i)
      prompt.insert(prompt.end(), wanted_.prompt.begin(), wanted_.prompt.begin() + count);
    return prompt;
  }

  int64_t kept() const { return std::ssize(scheduler_.kept_tokens()); }

  ThreadPool pool_{1};
  Model model_ = test::load_folder(test::tiny_model("mistral-tiny"), pool_);
  Scheduler scheduler_{model_, SessionOptions{100}};
  TextRequest wanted_;
  std::vector<int32_t> expected_;
};

TEST_F(OneText, GreedyTokensAreThoseOfTransformers) {
  const Recorder text = run(wanted_);
  EXPECT_EQ(text.tokens, first(20));
  ASSERT_TRUE(text.end);
  EXPECT_EQ(text.end->reason, StopReason::max_tokens);
  EXPECT_EQ(text.end->prompt_tokens, std::ssize(wanted_.prompt));
  EXPECT_EQ(text.end->tokens, 20);
  EXPECT_EQ(text.end->decoded_tokens, 19) << "the first token comes with the prompt";
  EXPECT_GT(text.end->prompt_seconds, 0);
  EXPECT_GT(text.end->decode_seconds, 0);
}

TEST_F(OneText, StopTokenEndsTheTextAndIsNotPartOfIt) {
  const int32_t stop = expected_[7];
  const auto at =
      static_cast<size_t>(std::find(expected_.begin(), expected_.end(), stop) - expected_.begin());
  wanted_.stop_ids = {3, stop};
  const Recorder text = run(wanted_);
  EXPECT_EQ(text.tokens, first(at));
  EXPECT_EQ(text.end->reason, StopReason::stop_token);
  EXPECT_EQ(text.end->decoded_tokens, static_cast<int64_t>(at)) << "the stop token was decoded";
}

TEST_F(OneText, EndsWhenTheContextIsFull) {
  wanted_.max_tokens = -1;
  const Recorder text = run(wanted_);
  EXPECT_EQ(text.end->reason, StopReason::context_full);
  // The last token was sampled from the last position and is not in the cache.
  EXPECT_EQ(text.tokens, first(100 - wanted_.prompt.size() + 1));
}

TEST_F(OneText, NoTokensMeansThatOnlyThePromptIsEvaluated) {
  wanted_.max_tokens = 0;
  const Recorder text = run(wanted_);
  EXPECT_TRUE(text.tokens.empty());
  EXPECT_EQ(text.end->reason, StopReason::max_tokens);
  EXPECT_EQ(text.end->decoded_tokens, 0);
  EXPECT_EQ(kept(), std::ssize(wanted_.prompt));
}

TEST_F(OneText, ItsSinkEndsIt) {
  const Recorder text = run(wanted_, [] { return false; });
  EXPECT_EQ(text.tokens, first(1));
  EXPECT_EQ(text.end->reason, StopReason::callback);
  EXPECT_EQ(text.end->decoded_tokens, 0);
}

TEST_F(OneText, TheTimeOfItsSinkIsNotThatOfTheText) {
  const auto slow = [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (std::chrono::steady_clock::now() < until) {
    }
    return true;
  };
  const auto start = std::chrono::steady_clock::now();
  const Recorder text = run(wanted_, slow);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  EXPECT_LE(text.end->prompt_seconds + text.end->decode_seconds, all.count() - 20 * 0.020 + 1e-6);
}

TEST_F(OneText, ARequestToStopEndsThePromptAndTheText) {
  std::atomic<bool> flag = true;
  const StopScope scope(flag);
  const Recorder prompt = run(wanted_);
  ASSERT_TRUE(prompt.error) << "the prompt was evaluated";
  EXPECT_EQ(prompt.error->code(), ErrorCode::interrupted);
  EXPECT_EQ(prompt.failed_at.tokens, 0);
  flag = false;
  const Recorder text = run(wanted_, [&] {
    flag = true;
    check_stop();  // as the decoder of a token's text does: a sink is not ended half-way
    return true;
  });
  EXPECT_EQ(text.tokens, first(1));
  ASSERT_TRUE(text.error);
  EXPECT_EQ(text.error->code(), ErrorCode::interrupted);
  EXPECT_EQ(text.failed_at.tokens, 1);
  EXPECT_EQ(kept(), 0);
}

TEST_F(OneText, RefusesAnEmptyPromptOneThatIsTooLongAndASecondText) {
  const auto sink = std::make_shared<Recorder>();
  wanted_.prompt.clear();
  EXPECT_THROW(scheduler_.add(wanted_, sink), Error);
  wanted_.prompt.assign(101, 1);
  EXPECT_THROW(scheduler_.add(wanted_, sink), Error);
  wanted_.prompt.assign(1, 1);
  scheduler_.add(wanted_, sink);
  EXPECT_THROW(scheduler_.add(wanted_, sink), Error);
}

TEST_F(OneText, LookedUpTokensChangeNoText) {
  // The prompt repeats itself and a penalty rewards what was there, so that there is much to look
  // up, right and wrong.
  wanted_.sampler.repeat_penalty = 0.2f;
  wanted_.prompt = repeated(8, 4);
  wanted_.shares_prefix = false;
  int64_t drafted = 0, right = 0;
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    for (const int64_t max_tokens : {1, 2, 30, -1}) {
      wanted_.sampler.temperature = temperature;
      wanted_.sampler.top_k = 3;
      wanted_.sampler.seed = 5;
      wanted_.max_tokens = max_tokens;
      wanted_.lookup = false;
      const Recorder plain = run(wanted_);
      const int64_t length = kept();
      wanted_.lookup = true;
      const Recorder looked_up = run(wanted_);
      EXPECT_EQ(looked_up.tokens, plain.tokens) << temperature << " " << max_tokens;
      EXPECT_EQ(looked_up.end->reason, plain.end->reason);
      EXPECT_EQ(looked_up.end->decoded_tokens, plain.end->decoded_tokens);
      EXPECT_EQ(kept(), length);
      EXPECT_EQ(plain.end->drafted, 0);
      drafted += looked_up.end->drafted;
      right += looked_up.end->drafted_right;
    }
  }
  EXPECT_GT(right, 0);
  EXPECT_LT(right, drafted) << "wrong drafts have to be seen as well";
}

TEST_F(OneText, TokensThatNobodyAskedForAreTakenBack) {
  wanted_.prompt = repeated(4, 8);
  wanted_.lookup = true;
  wanted_.max_tokens = 40;
  wanted_.shares_prefix = false;
  const Recorder all = run(wanted_);
  for (size_t count = 1; count < all.tokens.size(); ++count) {
    size_t seen = 0;
    const Recorder some = run(wanted_, [&] { return ++seen < count; });
    EXPECT_EQ(some.tokens.size(), count);
    EXPECT_EQ(kept(), static_cast<int64_t>(wanted_.prompt.size() + count - 1));
  }
}

// The next text goes on in the sequence of the one before, which is cut to what both begin with.
TEST_F(OneText, WhatAPromptBeginsWithIsNotEvaluatedAgain) {
  wanted_.sampler.repeat_penalty = 1.3f;
  const Recorder whole = run(wanted_);
  EXPECT_EQ(whole.end->cached_tokens, 0);
  EXPECT_EQ(kept(), std::ssize(wanted_.prompt) + 19);
  const Recorder again = run(wanted_);
  EXPECT_EQ(again.tokens, whole.tokens) << "the penalty is for known tokens as well";
  EXPECT_EQ(again.end->cached_tokens, std::ssize(wanted_.prompt) - 1);
  for (const size_t same : {1u, 5u}) {
    TextRequest other = wanted_;
    other.prompt[same] = (other.prompt[same] + 1) % 50 + 3;
    const Recorder changed = run(other);
    EXPECT_EQ(changed.end->cached_tokens, static_cast<int64_t>(same)) << "one token counts, too";
    EXPECT_THAT(changed.tokens, ElementsAreArray(test::plain_text(model_, other, 100)));
    run(wanted_);
  }
  wanted_.shares_prefix = false;
  EXPECT_EQ(run(wanted_).end->cached_tokens, 0);
  scheduler_.forget();
  EXPECT_EQ(kept(), 0);
  wanted_.shares_prefix = true;
  EXPECT_EQ(run(wanted_).end->cached_tokens, 0);
}

// Coded keys and values of the beginning stay as they are; recurrent layers begin anew where their
// state is gone.
TEST_F(OneText, OtherCachesGoOnWhereTheyCan) {
  SyntheticSource source("tiny", {&get_format("tq4"), &get_format("f16"), &get_format("f16")});
  LoadOptions options;
  options.pool = &pool_;
  options.cache = {&get_cache_type("tq3_0"), &get_cache_type("tq3_0"), 32};
  const Model coded =
      Model::load(source, parse_config(source.config_json(), source.path()), options);
  const Model recurrent = test::load_folder(test::tiny_model("qwen35-tiny"), pool_);
  for (const Model* model : {&coded, &recurrent}) {
    Scheduler scheduler(*model, SessionOptions{250});
    TextRequest request = wanted_;
    request.prompt = test::random_tokens(100, model->config.vocab, 1);
    const auto run = [&] {
      const auto sink = std::make_shared<Recorder>();
      scheduler.add(request, sink);
      test::finish(scheduler);
      return *sink;
    };
    const Recorder text = run();
    EXPECT_THAT(text.tokens, ElementsAreArray(test::plain_text(*model, request, 250)));
    request.prompt.insert(request.prompt.end(), text.tokens.begin(), text.tokens.end());
    request.prompt.push_back(7);
    EXPECT_EQ(run().end->cached_tokens, 119) << "the last token was not evaluated";
    request.prompt.resize(90);
    EXPECT_EQ(run().end->cached_tokens, model == &coded ? 89 : 0);
  }
}

TEST_F(OneText, EvaluatesTokensBetweenTwoTexts) {
  const Recorder text = run(wanted_);
  Session session(model_, {100});
  const test::Rows expected = test::all_logits(session, wanted_.prompt);
  test::Rows rows;
  scheduler_.forward(
      wanted_.prompt,
      [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); }, 2);
  EXPECT_THAT(rows, ElementsAreArray(expected.begin() + 2, expected.end()));
  EXPECT_EQ(kept(), 0) << "it gives way";
  EXPECT_THROW(scheduler_.forward(
                   std::vector<int32_t>{100000}, [](int64_t, std::span<const float>) {}, 0),
               Error);
  EXPECT_EQ(run(wanted_).tokens, text.tokens);
}

}  // namespace
}  // namespace walsh
