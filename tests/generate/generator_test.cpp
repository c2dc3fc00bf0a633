#include "generate/generator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "model/model_support.h"
#include "walsh/stop.h"

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

TEST_F(Generate, RefusesAnEmptyPromptAndOneThatIsTooLong) {
  EXPECT_THROW(generate(session_, {}, options_), Error);
  const std::vector<int32_t> longer(101, 1);
  EXPECT_THROW(generate(session_, longer, options_), Error);
}

}  // namespace
}  // namespace walsh
