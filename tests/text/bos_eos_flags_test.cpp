// Tests add_bos_token and add_eos_token of tokenizer_config.json against transformers
// (tools/make_flag_cases.py).
#include <gtest/gtest.h>

#include "io/json.h"
#include "text_test_util.h"

namespace walsh {
namespace {

using Ids = std::vector<int32_t>;

struct Case {
  std::string tokenizer, processor;
  Json tokenizer_class, add_bos, add_eos;
  Ids by_4, by_5;

  explicit Case(const Json& json) {
    const Json& of = json.at("of");
    tokenizer = of[0];
    tokenizer_class = of[1];
    add_bos = of[2];
    add_eos = of[3];
    processor = of[4];
    by_4 = json.at("4").get<Ids>();
    by_5 = json.at("5").get<Ids>();
  }

  bool any_flag() const { return !add_bos.is_null() || !add_eos.is_null(); }
  bool is_llama() const {
    return tokenizer_class.is_null() ||
           tokenizer_class.get<std::string>().starts_with("LlamaTokenizer");
  }

  Tokenizer load() const {
    Json document = parse_json(test::read_text(test::data_path(tokenizer + ".json")), tokenizer);
    if (processor == "null") document["post_processor"] = nullptr;
    if (processor == "bytes") {
      document["post_processor"] = {{"type", "ByteLevel"},
                                    {"add_prefix_space", true},
                                    {"trim_offsets", false},
                                    {"use_regex", true}};
    }
    const bool llama2 = tokenizer == "llama2";
    Json config = {{"bos_token", llama2 ? "<s>" : "<|begin_of_text|>"},
                   {"eos_token", llama2 ? "</s>" : "<|end_of_text|>"},
                   {"tokenizer_class", tokenizer_class},
                   {"add_bos_token", add_bos},
                   {"add_eos_token", add_eos}};
    return Tokenizer::from_json(document.dump(), config.dump(), "t.json");
  }
};

class BosEosFlags : public testing::Test {
 protected:
  const Json file_ = parse_json(test::read_text(test::data_path("bos_eos_flags.json")), "cases");
  const std::string text_ = file_.at("text");
};

TEST_F(BosEosFlags, EveryCombinationGivesTheIdsOfTransformers) {
  int differing = 0;
  for (const Json& json : file_.at("cases")) {
    const Case c(json);
    const Tokenizer tokenizer = c.load();
    Ids expected = c.any_flag() && c.is_llama() ? c.by_4 : c.by_5;
    // Neither version has another class add anything here; the flags say that it should.
    if (!c.is_llama() && c.processor == "null" && c.any_flag()) {
      expected = tokenizer.encode(text_, false);
      if (c.add_bos == true) expected.insert(expected.begin(), *tokenizer.bos());
      if (c.add_eos == true) expected.push_back(*tokenizer.eos());
    }
    EXPECT_EQ(tokenizer.encode(text_, true), expected) << json.dump();
    const bool adds_bos = expected.front() == *tokenizer.bos();
    EXPECT_EQ(tokenizer.added_bos(), adds_bos ? tokenizer.bos() : std::nullopt) << json.dump();
    differing += c.by_4 != c.by_5 ? 1 : 0;
  }
  EXPECT_GT(differing, 50) << "the versions differ, and the test has to tell them apart";
}

TEST_F(BosEosFlags, ATokenThatTheConfigurationLacksIsTheClassesOwnOrNone) {
  const std::string json = test::read_text(test::data_path("llama2.json"));
  const auto encode = [&](std::string_view config) {
    return Tokenizer::from_json(json, config, "t.json").encode("", true);
  };
  EXPECT_EQ(encode(R"({"add_bos_token": true, "add_eos_token": true})"), (Ids{1, 2}));
  EXPECT_EQ(encode(R"({"add_bos_token": false})"), Ids{});
  EXPECT_EQ(encode(R"({"add_bos_token": true, "bos_token": null})"), Ids{});
  EXPECT_EQ(encode(R"({"add_bos_token": null})"), (Ids{1})) << "no flag: the post-processor";
}

TEST_F(BosEosFlags, FlagsThatAreNoFlagsAreRefused) {
  const std::string json = test::read_text(test::data_path("llama2.json"));
  for (const char* config :
       {R"({"add_bos_token": 1})", R"({"add_eos_token": "true"})", R"({"tokenizer_class": 3})"}) {
    EXPECT_THAT(test::error_of([&] { Tokenizer::from_json(json, config, "t.json"); }),
                testing::StartsWith("t.json: tokenizer_config"))
        << config;
  }
}

}  // namespace
}  // namespace walsh
