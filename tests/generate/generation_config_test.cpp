#include "generate/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAre;

ModelConfig config_of(std::vector<int32_t> eos) {
  ModelConfig config;
  config.vocab = 10;
  config.eos = std::move(eos);
  return config;
}

GenerationConfig with(const std::string& json, const std::string& config_json = "{}") {
  return GenerationConfig(config_of({2}), json, config_json, "m");
}

SamplerOptions sampler(const std::string& json, const GenerationOptions& wanted = {}) {
  return with(json).sampler(wanted);
}

// The error must name the file and, if given, the key.
template <typename Call>
void expect_refused(Call call, const std::string& where, const std::string& key = "") {
  try {
    call();
    FAIL() << "accepted " << key;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
    EXPECT_THAT(e.where(), testing::StartsWith(where));
    EXPECT_THAT(e.what(), testing::HasSubstr(key));
  }
}

TEST(GenerationConfig, TakesTheSamplersValues) {
  const SamplerOptions o = sampler(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2,
          "do_sample": true, "max_length": 4096, "anything": [1]})");
  EXPECT_FLOAT_EQ(o.temperature, 0.6f);
  EXPECT_EQ(o.top_k, 20);
  EXPECT_FLOAT_EQ(o.top_p, 0.9f);
  EXPECT_FLOAT_EQ(o.min_p, 0.1f);
  EXPECT_FLOAT_EQ(o.repeat_penalty, 1.2f);
  const SamplerOptions nothing = sampler(R"({"temperature": null, "top_k": null})");
  EXPECT_EQ(nothing.temperature, SamplerOptions().temperature);
  EXPECT_EQ(nothing.top_k, SamplerOptions().top_k);
}

TEST(GenerationConfig, NoSamplingMeansTheBestTokenUnlessATemperatureIsGiven) {
  EXPECT_EQ(sampler(R"({"do_sample": false})").temperature, 0);
  EXPECT_EQ(sampler(R"({"do_sample": false, "temperature": 0.6})").temperature, 0);
  GenerationOptions given;
  given.temperature = SamplerOptions().temperature;
  EXPECT_EQ(sampler(R"({"do_sample": false, "temperature": 0.6})", given).temperature,
            SamplerOptions().temperature);
  EXPECT_FLOAT_EQ(sampler(R"({"do_sample": true, "temperature": 0.6})").temperature, 0.6f);
  EXPECT_FLOAT_EQ(sampler(R"({"do_sample": null, "temperature": 0.6})").temperature, 0.6f);
}

TEST(GenerationConfig, TopKMinusOneAndZeroMeanAll) {
  EXPECT_EQ(sampler(R"({"top_k": -1})").top_k, 0);
  EXPECT_EQ(sampler(R"({"top_k": 0})").top_k, 0);
  EXPECT_GE(sampler(R"({"top_k": 9000000000})").top_k, 1 << 24);
}

TEST(GenerationConfig, BadValuesNameFileAndKey) {
  for (const char* entry :
       {R"("temperature": -1)", R"("temperature": "hot")", R"("top_k": -2)", R"("top_k": 2.5)",
        R"("top_k": "all")", R"("top_p": 1.5)", R"("top_p": [1])", R"("min_p": -0.1)",
        R"("repetition_penalty": 0)", R"("repetition_penalty": true)", R"("do_sample": "yes")",
        R"("do_sample": 0)", R"("temperature": 1e999)"}) {
    const std::string text = entry;
    std::string json = "{";
    json.append(text).append("}");
    const std::string key = text.substr(1, text.find('"', 1) - 1);
    const bool number_is_too_large = text.find("1e999") != text.npos;
    expect_refused([&] { sampler(json); }, "m: generation_config.json",
                   number_is_too_large ? "" : key);
  }
}

TEST(GenerationConfig, ABadValueThatIsReplacedIsNotLookedAt) {
  const std::string json = R"({"temperature": "hot", "top_k": "x", "top_p": 7, "min_p": 7,
                               "repetition_penalty": -3, "do_sample": "maybe"})";
  GenerationOptions given;
  given.temperature = given.top_p = given.min_p = given.repeat_penalty = 0.75f;
  given.top_k = 7;
  const SamplerOptions o = sampler(json, given);
  EXPECT_EQ(o.temperature, 0.75f);
  EXPECT_EQ(o.top_k, 7);
  given.top_p = 1.5f;
  try {
    sampler("{}", given);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("top_p"));
  }
}

TEST(GenerationConfig, WithoutTheFileTheKeysOfConfigJsonCount) {
  const std::string config = R"({"vocab_size": 10, "temperature": 0.5, "top_k": -1,
                                 "repetition_penalty": 1.1, "do_sample": true})";
  const SamplerOptions o = with("", config).sampler({});
  EXPECT_FLOAT_EQ(o.temperature, 0.5f);
  EXPECT_EQ(o.top_k, 0);
  EXPECT_FLOAT_EQ(o.repeat_penalty, 1.1f);
  EXPECT_EQ(with("{}", config).sampler({}).temperature, SamplerOptions().temperature)
      << "the file is there, with nothing in it";
  expect_refused([] { with("", R"({"top_p": 3})").sampler({}); }, "m: config.json", "top_p");
  EXPECT_EQ(with("", "").sampler({}).top_k, SamplerOptions().top_k);
}

TEST(GenerationConfig, StopIdsAreThoseOfTheFileThenOfTheConfig) {
  EXPECT_THAT(with("", R"({"eos_token_id": 2})").stop_ids(), ElementsAre(2));
  EXPECT_THAT(with("", "").stop_ids(), ElementsAre(2));
  EXPECT_THAT(with("{}").stop_ids(), ElementsAre(2));
  EXPECT_THAT(with(R"({"eos_token_id": null})").stop_ids(), ElementsAre(2));
  EXPECT_THAT(with(R"({"eos_token_id": 9})").stop_ids(), ElementsAre(9));
  EXPECT_THAT(with(R"({"eos_token_id": [7, 8]})").stop_ids(), ElementsAre(7, 8));
  EXPECT_THAT(with(R"({"eos_token_id": []})").stop_ids(), ElementsAre());
}

TEST(GenerationConfig, StopIdsOutsideTheVocabularyAreRefusedWhenTheyAreAskedFor) {
  for (const char* bad :
       {R"({"eos_token_id": 10})", R"({"eos_token_id": -1})", R"({"eos_token_id": "2"})",
        R"({"eos_token_id": [1, 2.5]})", R"({"eos_token_id": 18446744073709551615})"}) {
    const GenerationConfig config = with(bad);
    EXPECT_EQ(config.sampler({}).top_k, SamplerOptions().top_k);
    expect_refused([&] { config.stop_ids(); }, "m: generation_config.json", "eos_token_id");
  }
  const GenerationConfig of_config(config_of({1, 10}), "{}", "{}", "m");
  expect_refused([&] { of_config.stop_ids(); }, "m: config.json", "eos_token_id");
}

TEST(GenerationConfig, WhatIsNoObjectIsRefusedWhenItIsReadAndNamed) {
  for (const char* bad : {"{", "[1, 2]", "3", "null", "{}x"}) {
    const GenerationConfig config = with(bad);
    expect_refused([&] { config.sampler({}); }, "m: generation_config.json");
    expect_refused([&] { config.stop_ids(); }, "m: generation_config.json");
  }
}

}  // namespace
}  // namespace walsh
