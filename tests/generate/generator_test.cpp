#include "generate/generator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/stop.h"
#include "model/model_support.h"

namespace walsh {
namespace {

class Generate : public testing::Test {
 protected:
  Generate() {
    const auto golden = nlohmann::json::parse(
        test::read_file(std::string(WALSH_TEST_DATA) + "/goldens/mistral-tiny.json"));
    golden.at("tokens").get_to(prompt_);
    golden.at("greedy").get_to(expected_);
    options_.sampler.temperature = 0;
    options_.max_tokens = 20;
  }

  std::vector<int32_t> first(size_t count) const {
    return {expected_.begin(), expected_.begin() + static_cast<int64_t>(count)};
  }

  ThreadPool pool_{1};
  Model model_ = test::load_folder(test::tiny_model("mistral-tiny"), pool_);
  Session session_{model_, {100}};
  std::vector<int32_t> prompt_, expected_;
  GenerateOptions options_;
};

TEST_F(Generate, GreedyTokensAreThoseOfTransformers) {
  std::vector<int32_t> streamed;
  const GenerateResult result = generate(session_, prompt_, options_, [&](int32_t token) {
    streamed.push_back(token);
    return true;
  });
  EXPECT_EQ(result.tokens, first(20));
  EXPECT_EQ(streamed, result.tokens);
  EXPECT_EQ(result.reason, StopReason::max_tokens);
  EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(prompt_.size()));
  EXPECT_EQ(result.decoded_tokens, 19) << "the first token comes with the prompt";
  EXPECT_GT(result.prompt_tokens_per_second(), 0);
  EXPECT_GT(result.decode_tokens_per_second(), 0);
}

TEST_F(Generate, StopTokenEndsTheTextAndIsNotPartOfIt) {
  const int32_t stop = expected_[7];
  const auto at =
      static_cast<size_t>(std::find(expected_.begin(), expected_.end(), stop) - expected_.begin());
  options_.stop_ids = {3, stop};
  const GenerateResult result = generate(session_, prompt_, options_);
  EXPECT_EQ(result.tokens, first(at));
  EXPECT_EQ(result.reason, StopReason::stop_token);
}

TEST_F(Generate, EndsWhenTheContextIsFull) {
  options_.max_tokens = -1;
  const GenerateResult result = generate(session_, prompt_, options_);
  EXPECT_EQ(result.reason, StopReason::context_full);
  // The last token was sampled from the last position and is not in the cache.
  EXPECT_EQ(result.tokens, first(100 - prompt_.size() + 1));
}

TEST_F(Generate, NoTokensMeansThatOnlyThePromptIsEvaluated) {
  options_.max_tokens = 0;
  int calls = 0;
  const GenerateResult result =
      generate(session_, prompt_, options_, [&](int32_t) { return ++calls > 0; });
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(result.reason, StopReason::max_tokens);
  EXPECT_EQ(result.decoded_tokens, 0);
  EXPECT_EQ(session_.position(), static_cast<int64_t>(prompt_.size()));
}

TEST_F(Generate, CallbackEndsIt) {
  const GenerateResult result =
      generate(session_, prompt_, options_, [](int32_t) { return false; });
  EXPECT_EQ(result.tokens, first(1));
  EXPECT_EQ(result.reason, StopReason::callback);
  EXPECT_EQ(result.decode_tokens_per_second(), 0);
}

TEST_F(Generate, ARequestToStopEndsThePromptAndTheText) {
  std::atomic<bool> flag = true;
  const StopScope scope(flag);
  try {
    generate(session_, prompt_, options_);
    ADD_FAILURE() << "the prompt was evaluated";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::interrupted);
  }
  flag = false;
  session_.reset();
  const GenerateResult result = generate(session_, prompt_, options_, [&](int32_t) {
    flag = true;
    return true;
  });
  EXPECT_EQ(result.tokens, first(1));
  EXPECT_EQ(result.reason, StopReason::callback);
}

TEST_F(Generate, ARequestToStopDoesNotEndTheCallback) {
  std::atomic<bool> flag = false;
  const StopScope scope(flag);
  const GenerateResult result = generate(session_, prompt_, options_, [&](int32_t) {
    flag = true;
    check_stop();  // as the decoder of a token's text does
    return true;
  });
  EXPECT_EQ(result.tokens, first(1));
  EXPECT_EQ(result.reason, StopReason::callback);
}

TEST_F(Generate, RefusesAnEmptyPromptAndOneThatIsTooLong) {
  EXPECT_THROW(generate(session_, {}, options_), Error);
  const std::vector<int32_t> longer(101, 1);
  EXPECT_THROW(generate(session_, longer, options_), Error);
}

TEST_F(Generate, LookedUpTokensChangeNoText) {
  // A prompt that repeats itself and a penalty that rewards what was there, so that there is much
  // to look up, right and wrong.
  options_.sampler.repeat_penalty = 0.2f;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 4; ++i)
    prompt.insert(prompt.end(), prompt_.begin(), prompt_.begin() + 8);
  int64_t drafted = 0, right = 0;
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    for (const int64_t max_tokens : {1, 2, 30, -1}) {
      options_.sampler.temperature = temperature;
      options_.sampler.top_k = 3;
      options_.sampler.seed = 5;
      options_.max_tokens = max_tokens;
      options_.lookup = false;
      session_.reset();
      const GenerateResult plain = generate(session_, prompt, options_);
      const int64_t position = session_.position();
      options_.lookup = true;
      session_.reset();
      const GenerateResult looked_up = generate(session_, prompt, options_);
      EXPECT_EQ(looked_up.tokens, plain.tokens) << temperature << " " << max_tokens;
      EXPECT_EQ(looked_up.reason, plain.reason);
      EXPECT_EQ(session_.position(), position);
      drafted += looked_up.drafted;
      right += looked_up.drafted_right;
    }
  }
  EXPECT_GT(right, 0);
  EXPECT_LT(right, drafted) << "wrong drafts have to be seen as well";
}

TEST_F(Generate, TokensThatNobodyAskedForAreTakenBack) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 8; ++i)
    prompt.insert(prompt.end(), prompt_.begin(), prompt_.begin() + 4);
  options_.lookup = true;
  options_.max_tokens = 40;
  const GenerateResult all = generate(session_, prompt, options_);
  for (size_t count = 1; count < all.tokens.size(); ++count) {
    session_.reset();
    size_t seen = 0;
    const GenerateResult some =
        generate(session_, prompt, options_, [&](int32_t) { return ++seen < count; });
    EXPECT_EQ(some.tokens.size(), count);
    EXPECT_EQ(session_.position(), static_cast<int64_t>(prompt.size() + count - 1));
  }
}

TEST_F(Generate, KnownTokensOfAPromptAreNotEvaluatedAgain) {
  options_.sampler.repeat_penalty = 1.3f;
  const GenerateResult whole = generate(session_, prompt_, options_);
  session_.truncate(5);
  options_.known = 5;
  EXPECT_EQ(generate(session_, prompt_, options_).tokens, whole.tokens)
      << "the penalty is for known tokens as well";
  options_.known = static_cast<int64_t>(prompt_.size());
  EXPECT_THROW(generate(session_, prompt_, options_), Error);
}

}  // namespace
}  // namespace walsh
