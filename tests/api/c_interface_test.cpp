// Tests the C interface (walsh/walsh.h): status codes and messages, and the same texts as the C++
// classes.
#include "walsh/walsh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "walsh/engine.h"
#include "walsh/version.h"

namespace walsh {
namespace {

using testing::HasSubstr;

const std::string kPath = std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m";

class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(
        walsh_open(kPath.c_str(), R"({"device": "cpu", "threads": 2, "context": 128})", &model_),
        WALSH_OK)
        << walsh_error();
    ASSERT_EQ(walsh_session_open(model_, 0, &session_), WALSH_OK) << walsh_error();
  }
  void TearDown() override {
    walsh_close(model_);  // before its session, which keeps it alive
    walsh_session_close(session_);
  }

  walsh_status generate(const std::string& prompt, const char* options, walsh_callback callback,
                        void* user, walsh_result* result = nullptr) {
    return walsh_generate(session_, prompt.data(), prompt.size(), options, callback, user, result);
  }

  walsh_model* model_ = nullptr;
  walsh_session* session_ = nullptr;
};

int append(void* user, const char* piece, size_t length) {
  static_cast<std::string*>(user)->append(piece, length);
  return 1;
}

TEST_F(CInterface, GeneratesWhatTheEngineDoes) {
  EXPECT_STREQ(walsh_version(), kVersion);
  EXPECT_EQ(walsh_context(model_), 128);
  EXPECT_EQ(walsh_bits_per_weight(model_), 16);
  EngineOptions cpu;
  cpu.device = "cpu";
  Engine engine = Engine::open(kPath, cpu);
  EXPECT_EQ(walsh_vocab_size(model_), engine.vocab_size());
  GenerationOptions greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 8;
  const GenerationResult expected = engine.generate("The river", greedy);
  std::string text;
  walsh_result result;
  ASSERT_EQ(generate("The river", R"({"temperature": 0, "max_tokens": 8})", append, &text, &result),
            WALSH_OK)
      << walsh_error();
  EXPECT_EQ(text, expected.text);
  EXPECT_EQ(result.finish, WALSH_FINISH_MAX_TOKENS);
  EXPECT_EQ(result.tokens, 8);
  EXPECT_EQ(result.prompt_tokens, expected.prompt_tokens);

  const std::vector<int32_t> tokens = engine.encode_prompt("The river");
  std::string again;
  ASSERT_EQ(
      walsh_generate_tokens(session_, tokens.data(), tokens.size(),
                            R"({"temperature": 0, "max_tokens": 8})", append, &again, &result),
      WALSH_OK);
  EXPECT_EQ(again, text);
  EXPECT_GT(result.cached_tokens, 0);
  std::vector<float> logits(static_cast<size_t>(engine.vocab_size()));
  ASSERT_EQ(walsh_logits(model_, tokens.data(), tokens.size(), logits.data()), WALSH_OK);
  EXPECT_EQ(logits, engine.logits(tokens));
}

TEST_F(CInterface, OptionsAreReadStrictly) {
  std::string text;
  const auto refused = [&](const char* options) {
    EXPECT_EQ(generate("The river", options, append, &text), WALSH_USAGE) << options;
    return std::string(walsh_error());
  };
  EXPECT_THAT(refused(R"({"temprature": 0})"), HasSubstr("temprature: is no option"));
  EXPECT_THAT(refused(R"({"max_tokens": "many"})"), HasSubstr("max_tokens: is the string"));
  EXPECT_THAT(refused(R"({"top_k": 3000000000})"), HasSubstr("top_k"));
  EXPECT_THAT(refused(R"({"seed": -2})"), HasSubstr("seed"));
  EXPECT_THAT(refused(R"({"top_p": 2})"), HasSubstr("top_p"));
  EXPECT_THAT(refused(R"({"logit_bias": {"x": 1}})"), HasSubstr("logit_bias"));
  EXPECT_THAT(refused("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refused("{"), HasSubstr("options"));
  EXPECT_EQ(text, "");

  ASSERT_EQ(
      generate("The river", R"({"temperature": 0, "max_tokens": 12, "seed": 18446744073709551615,
                                      "top_k": null, "repetition_penalty": 1.1,
                                      "stop": ["no such text"],
                                      "logit_bias": {"5": -1},
                                      "json_schema": {"type": "integer", "maximum": 9}})",
               append, &text),
      WALSH_OK)
      << walsh_error();
  EXPECT_NE(text.find_first_of("-0123456789"), std::string::npos) << text;
  EXPECT_EQ(generate("The river", R"({"max_tokens": 1, "seed": -1})", append, &text), WALSH_OK)
      << walsh_error() << "drawn";
  walsh_model* other = nullptr;
  EXPECT_EQ(walsh_open(kPath.c_str(), R"({"contxt": 1})", &other), WALSH_USAGE);
  EXPECT_EQ(walsh_open(kPath.c_str(), R"({"device": "tpu"})", &other), WALSH_USAGE);
  EXPECT_EQ(other, nullptr);
}

TEST_F(CInterface, ErrorsAreCodesWithMessages) {
  walsh_model* other = model_;
  EXPECT_EQ(walsh_open("/nonexistent", nullptr, &other), WALSH_IO);
  EXPECT_EQ(other, nullptr);
  EXPECT_THAT(walsh_error(), HasSubstr("/nonexistent"));
  EXPECT_EQ(walsh_open(nullptr, nullptr, &other), WALSH_USAGE);
  EXPECT_THAT(walsh_error(), HasSubstr("path: is NULL"));
  EXPECT_EQ(walsh_generate(nullptr, "a", 1, nullptr, nullptr, nullptr, nullptr), WALSH_USAGE);
  walsh_session* session = session_;
  EXPECT_EQ(walsh_session_open(model_, -1, &session), WALSH_USAGE);
  EXPECT_EQ(session, nullptr);
  const int32_t foreign = 1 << 30;
  EXPECT_EQ(walsh_generate_tokens(session_, &foreign, 1, nullptr, nullptr, nullptr, nullptr),
            WALSH_USAGE);
  std::string long_prompt;
  for (int i = 0; i < 300; ++i)
    long_prompt += " river";
  EXPECT_EQ(generate(long_prompt, nullptr, nullptr, nullptr), WALSH_USAGE);
  // The session can still be used.
  std::string text;
  EXPECT_EQ(generate("The river", R"({"max_tokens": 2})", append, &text), WALSH_OK);
  walsh_close(nullptr);
  walsh_session_close(nullptr);
}

TEST_F(CInterface, TextsAndTokensNeedRoom) {
  const std::string text = "The river was low.";
  size_t count = 0;
  ASSERT_EQ(walsh_tokenize(model_, text.data(), text.size(), 0, nullptr, 0, &count), WALSH_OK);
  std::vector<int32_t> tokens(count, -1);
  size_t again = 0;
  EXPECT_EQ(walsh_tokenize(model_, text.data(), text.size(), 0, tokens.data(), count - 1, &again),
            WALSH_LIMIT);
  EXPECT_EQ(again, count);
  EXPECT_EQ(tokens[0], -1) << "nothing is written";
  ASSERT_EQ(walsh_tokenize(model_, text.data(), text.size(), 0, tokens.data(), count, &again),
            WALSH_OK);
  size_t length = 0;
  ASSERT_EQ(walsh_detokenize(model_, tokens.data(), count, 1, nullptr, 0, &length), WALSH_OK);
  EXPECT_EQ(length, text.size());
  std::string back(length + 1, 'x');
  EXPECT_EQ(walsh_detokenize(model_, tokens.data(), count, 1, back.data(), length, &length),
            WALSH_LIMIT)
      << "the zero needs room, too";
  ASSERT_EQ(walsh_detokenize(model_, tokens.data(), count, 1, back.data(), length + 1, &length),
            WALSH_OK);
  EXPECT_EQ(back.c_str(), text);
  char prompt[256];
  ASSERT_EQ(walsh_chat_prompt(model_, R"([{"role": "user", "content": "Hi"}])", prompt,
                              sizeof prompt, &length),
            WALSH_OK);
  EXPECT_THAT(prompt, HasSubstr("Hi<|im_end|>"));
  EXPECT_EQ(walsh_chat_prompt(model_, "{", prompt, sizeof prompt, &length), WALSH_BAD_INPUT);
}

TEST_F(CInterface, ACallbackAndAStopEndAText) {
  walsh_result result;
  int pieces = 0;
  const auto second = [](void* user, const char*, size_t) {
    return ++*static_cast<int*>(user) < 2 ? 1 : 0;
  };
  ASSERT_EQ(generate("The river", nullptr, second, &pieces, &result), WALSH_OK);
  EXPECT_EQ(result.finish, WALSH_FINISH_STOPPED);
  EXPECT_EQ(pieces, 2);
  const auto stop = [](void* user, const char*, size_t) {
    walsh_session_stop(static_cast<walsh_session*>(user));
    return 1;
  };
  ASSERT_EQ(generate("The river", R"({"max_tokens": -1})", stop, session_, &result), WALSH_OK);
  EXPECT_EQ(result.finish, WALSH_FINISH_STOPPED);
  walsh_session_reset(session_);
  ASSERT_EQ(generate("The river", R"({"max_tokens": 2})", nullptr, nullptr, &result), WALSH_OK);
  EXPECT_EQ(result.tokens, 2) << "the next text is not ended";
}

}  // namespace
}  // namespace walsh
