// Tests tokenizers in GGUF files: built from the metadata that llama.cpp's converter writes for a
// tokenizer.json, they give the same tokens.
#include "import/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Json = nlohmann::json;

std::string read(const std::string& name) {
  std::ifstream file(WALSH_TEST_DATA "/tokenizers/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream file(WALSH_TEST_DATA "/tokenizers/" + name, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

class Content {
 public:
  Content() { set("general.architecture", GgufValue::text("llama")); }
  void set(const std::string& key, GgufValue value) {
    const auto [place, is_new] = content_.metadata_index.try_emplace(key, content_.metadata.size());
    if (is_new) {
      content_.metadata.push_back({key, std::move(value)});
    } else {
      content_.metadata[place->second].value = std::move(value);
    }
  }
  GgufTokenizer convert() const { return gguf_tokenizer(GgufMetadata(content_, "model.gguf")); }

 private:
  GgufContent content_;
};

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;

  explicit Tokens(const Json& json) {
    for (const auto& [text, id] : json["model"]["vocab"].items())
      put(id, text, text.starts_with("<0x") ? kByte : kNormal);
    for (const Json& added : json["added_tokens"]) {
      const std::string text = added["content"];
      const bool is_special = added["special"];
      put(added["id"], text, text == "<unk>" ? kUnknown : is_special ? kControl : kUserDefined);
    }
    scores.assign(texts.size(), -1e6f);
    float score = 0;
    for (const Json& merge : json["model"]["merges"]) {
      const bool is_pair = merge.is_array();
      const std::string text = is_pair
                                   ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                                   : merge.get<std::string>();
      merges.push_back(text);
      std::string joined = text;
      joined.erase(text.find(' '), 1);
      const size_t id = json["model"]["vocab"][joined];
      if (scores[id] < -1e5f) scores[id] = score;
      score -= 1;
    }
  }

  // Moves the added tokens before all others, with `hole` unused ids after the first of them and
  // `pads` unused ids at the end. Returns the new ids by the old ones.
  std::vector<int32_t> reorder(size_t hole, size_t pads) {
    std::vector<size_t> order(texts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](size_t id) {
      return types[id] == kControl || types[id] == kUserDefined || types[id] == kUnknown;
    });
    const Tokens old = *this;
    texts.clear(), types.clear(), scores.clear();
    std::vector<int32_t> places(order.size());
    for (const size_t id : order) {
      places[id] = static_cast<int32_t>(texts.size());
      texts.push_back(old.texts[id]);
      types.push_back(old.types[id]);
      scores.push_back(old.scores[id]);
      if (texts.size() == 1) pad(hole);
    }
    pad(pads);
    return places;
  }

  Content content(const char* model) const {
    Content content;
    content.set("tokenizer.ggml.model", GgufValue::text(model));
    content.set("tokenizer.ggml.tokens", GgufValue::texts(texts));
    content.set("tokenizer.ggml.token_type", GgufValue::numbers(types));
    content.set("tokenizer.ggml.scores", GgufValue::numbers(scores));
    content.set("tokenizer.ggml.merges", GgufValue::texts(merges));
    content.set("tokenizer.ggml.add_bos_token", GgufValue::boolean(false));
    return content;
  }

 private:
  // llama.cpp's converter names the rows of an embedding that are no tokens so.
  void pad(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      texts.push_back("[PAD" + std::to_string(texts.size()) + "]");
      types.push_back(kUnused);
      scores.push_back(-1e4f);
    }
  }
  void put(size_t id, const std::string& text, int32_t type) {
    if (texts.size() <= id) {
      for (size_t hole = texts.size(); hole <= id; ++hole)
        texts.push_back("[PAD" + std::to_string(hole) + "]");
      types.resize(id + 1, 5);
    }
    texts[id] = text;
    types[id] = type;
  }
};

struct Case {
  const char *name, *model, *pre;
};

class GgufTokenizerCases : public testing::TestWithParam<Case> {};

TEST_P(GgufTokenizerCases, TokensAndTextsAreThoseOfTheTokenizerJson) {
  const Case& c = GetParam();
  const std::string json = read(std::string(c.name) + ".json");
  const Tokenizer original = Tokenizer::from_json(json, "", c.name);
  Content content = Tokens(Json::parse(json)).content(c.model);
  content.set("tokenizer.ggml.pre", GgufValue::text(c.pre));
  const GgufTokenizer converted = content.convert();
  const Tokenizer tokenizer = Tokenizer::from_json(converted.json, converted.config, "gguf");
  size_t compared = 0;
  for (const std::string& line : lines_of("strings.txt")) {
    const std::vector<int32_t> ids = original.encode(line, false);
    EXPECT_EQ(tokenizer.encode(line, false), ids) << line;
    EXPECT_EQ(tokenizer.decode(ids, true), original.decode(ids, true)) << line;
    ++compared;
  }
  EXPECT_GT(compared, 100u);
}

TEST_P(GgufTokenizerCases, TokensAreTheSameWhereverTheirIdsLie) {
  const Case& c = GetParam();
  const std::string json = read(std::string(c.name) + ".json");
  const Tokenizer original = Tokenizer::from_json(json, "", c.name);
  for (const size_t hole : {size_t{0}, size_t{3}}) {
    Tokens tokens(Json::parse(json));
    const std::vector<int32_t> places = tokens.reorder(hole, 40);
    Content content = tokens.content(c.model);
    content.set("tokenizer.ggml.pre", GgufValue::text(c.pre));
    const GgufTokenizer converted = content.convert();
    const Tokenizer tokenizer = Tokenizer::from_json(converted.json, converted.config, "gguf");
    for (const std::string& line : lines_of("strings.txt")) {
      std::vector<int32_t> ids = original.encode(line, false);
      const std::string text = original.decode(ids, true);
      for (int32_t& id : ids)
        id = places[static_cast<size_t>(id)];
      ASSERT_EQ(tokenizer.encode(line, false), ids) << line;
      ASSERT_EQ(tokenizer.decode(ids, true), text) << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufTokenizerCases,
    testing::Values(Case{"gpt2", "gpt2", "gpt-2"}, Case{"llama3", "gpt2", "llama-bpe"},
                    Case{"qwen2", "gpt2", "qwen2"}, Case{"llama2", "llama", "default"},
                    Case{"llama2", "gemma4", "default"}),
    [](const auto& info) { return std::string(info.param.name) + "_" + info.param.model; });

// Makes a byte-level vocabulary of four tokens.
Content small() {
  Content content;
  content.set("tokenizer.ggml.model", GgufValue::text("gpt2"));
  content.set("tokenizer.ggml.pre", GgufValue::text("gpt-2"));
  content.set("tokenizer.ggml.tokens", GgufValue::texts({"a", "b", "ab", "<end>"}));
  content.set("tokenizer.ggml.token_type",
              GgufValue::numbers(std::vector<int32_t>{kNormal, kNormal, kNormal, kControl}));
  content.set("tokenizer.ggml.merges", GgufValue::texts({"a b"}));
  content.set("tokenizer.ggml.bos_token_id", GgufValue::number<uint32_t>(3));
  content.set("tokenizer.ggml.eos_token_id", GgufValue::number<uint32_t>(3));
  return content;
}

TEST(GgufTokenizer, FlagsAndNamedTokensCount) {
  Content content = small();
  content.set("tokenizer.ggml.add_bos_token", GgufValue::boolean(true));
  content.set("tokenizer.ggml.add_eos_token", GgufValue::boolean(true));
  content.set("tokenizer.chat_template", GgufValue::text("{{ messages[0].content }}"));
  const GgufTokenizer converted = content.convert();
  const Tokenizer tokenizer = Tokenizer::from_json(converted.json, converted.config, "gguf");
  EXPECT_EQ(tokenizer.encode("ab", true), (std::vector<int32_t>{3, 2, 3}));
  EXPECT_EQ(tokenizer.encode("ab<end>b", false), (std::vector<int32_t>{2, 3, 1}));
  EXPECT_EQ(tokenizer.eos(), 3);
  EXPECT_EQ(Json::parse(converted.config)["chat_template"], "{{ messages[0].content }}");
}

TEST(GgufTokenizer, TypesOfTokensMeanWhatTheyMeanToLlamaCpp) {
  Content content = small();
  content.set("tokenizer.ggml.tokens",
              GgufValue::texts({"<end>", "<say>", "<odd>", "<pad>", "", "a", "b", "ab", "<0x41>"}));
  content.set("tokenizer.ggml.token_type",
              GgufValue::numbers(std::vector<int32_t>{kControl, kUserDefined, kUnknown, kUnused,
                                                      kControl, kNormal, kNormal, kNormal, kByte}));
  content.set("tokenizer.ggml.bos_token_id", GgufValue::number<uint32_t>(0));
  content.set("tokenizer.ggml.eos_token_id", GgufValue::number<uint32_t>(0));
  const GgufTokenizer converted = content.convert();
  const Tokenizer tokenizer = Tokenizer::from_json(converted.json, converted.config, "gguf");
  EXPECT_EQ(tokenizer.encode("ab<end>a<say>b<odd>ab<pad>", false),
            (std::vector<int32_t>{7, 0, 5, 1, 6, 2, 7, 5}))
      << "the text of an unused token is a text, of which this vocabulary has one letter";
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, 1, 2, 3, 5}, true), "<say>a");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, 1, 2, 3, 5}, false), "<end><say><odd>a");
}

// Gemma 4's merges join characters, with U+2581 for a space, and no space is put in front.
TEST(GgufTokenizer, Gemma4MergesCharactersOfTheWholeText) {
  Content content;
  content.set("tokenizer.ggml.model", GgufValue::text("gemma4"));
  content.set("tokenizer.ggml.tokens", GgufValue::texts({"<eos>", "a", "b", "\xE2\x96\x81",
                                                         "\xE2\x96\x81"
                                                         "a",
                                                         "\n", "\n\n", "<0x21>"}));
  content.set("tokenizer.ggml.token_type",
              GgufValue::numbers(std::vector<int32_t>{kControl, kNormal, kNormal, kNormal, kNormal,
                                                      kNormal, kNormal, kByte}));
  content.set("tokenizer.ggml.merges", GgufValue::texts({"\n \n", "\xE2\x96\x81 a"}));
  content.set("tokenizer.ggml.add_space_prefix", GgufValue::boolean(false));
  content.set("tokenizer.ggml.bos_token_id", GgufValue::number<uint32_t>(0));
  const GgufTokenizer converted = content.convert();
  const Tokenizer tokenizer = Tokenizer::from_json(converted.json, converted.config, "gguf");
  EXPECT_EQ(tokenizer.encode("a a b\n\n!", true), (std::vector<int32_t>{0, 1, 4, 3, 2, 6, 7}));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1, 4, 3, 2, 6, 7}, true), "a a b\n\n!");
}

TEST(GgufTokenizer, TheNameOfThePatternsDecidesWhatAWordIs) {
  const auto tokens = [](const char* pre, const char* text) {
    Content content;
    content.set("tokenizer.ggml.model", GgufValue::text("gpt2"));
    content.set("tokenizer.ggml.pre", GgufValue::text(pre));
    // The tokens are "a", "1", "2", "12", "!", "a!", the letter between n and o of Spanish, that
    // behind an "a".
    content.set("tokenizer.ggml.tokens",
                GgufValue::texts({"a", "1", "2", "12", "!", "a!", "\xC3\x83", "\xC2\xB1",
                                  "\xC3\x83\xC2\xB1", "a\xC3\x83\xC2\xB1"}));
    content.set("tokenizer.ggml.merges",
                GgufValue::texts({"1 2", "a !", "\xC3\x83 \xC2\xB1", "a \xC3\x83\xC2\xB1"}));
    const GgufTokenizer converted = content.convert();
    return Tokenizer::from_json(converted.json, converted.config, "gguf").encode(text, false);
  };
  using Ids = std::vector<int32_t>;
  // Its punctuation reaches from ":" to "~", which cuts words at letters behind ASCII.
  EXPECT_EQ(tokens("deepseek-llm",
                   "a\xC3\xB1"
                   "12a!"),
            (Ids{0, 8, 3, 0, 4}));
  EXPECT_EQ(tokens("deepseek-coder",
                   "a\xC3\xB1"
                   "12a!"),
            (Ids{9, 1, 2, 0, 4}));
}

TEST(GgufTokenizer, AFileWithoutTokenizerHasNone) {
  EXPECT_TRUE(Content().convert().json.empty());
}

TEST(GgufTokenizer, WhatLiesIsRefusedByName) {
  using Change = std::function<void(Content&)>;
  const auto set = [](const char* key, GgufValue value) {
    return [=](Content& content) { content.set(key, value); };
  };
  const std::vector<int32_t> three = {1, 1, 1};
  const std::vector<std::pair<const char*, Change>> cases = {
      {"tokenizer.ggml.model", set("tokenizer.ggml.model", GgufValue::text("wordlevel"))},
      {"tokenizer.ggml.model", set("tokenizer.ggml.model", GgufValue::number<uint32_t>(1))},
      {"tokenizer.ggml.pre", set("tokenizer.ggml.pre", GgufValue::text("unheard-of"))},
      {"tokenizer.ggml.token_type", set("tokenizer.ggml.token_type", GgufValue::numbers(three))},
      {"token 1 has type 7, expected 1 to 6",
       set("tokenizer.ggml.token_type", GgufValue::numbers(std::vector<int32_t>{1, 7, 1, 3}))},
      {"token 0 has type 0, expected 1 to 6",
       set("tokenizer.ggml.token_type", GgufValue::numbers(std::vector<int32_t>{0, 1, 1, 3}))},
      {"token 3 has type -1, expected 1 to 6",
       set("tokenizer.ggml.token_type", GgufValue::numbers(std::vector<int8_t>{1, 1, 1, -1}))},
      {"tokenizer.ggml.tokens", set("tokenizer.ggml.tokens", GgufValue::number<uint32_t>(4))},
      {"tokenizer.ggml.tokens",
       set("tokenizer.ggml.tokens", GgufValue::texts({"a", "a", "ab", "<end>"}))},
      {"token 1 is not UTF-8",
       set("tokenizer.ggml.tokens", GgufValue::texts({"a", "\xFF", "ab", "<end>"}))},
      {"tokenizer.ggml.merges", set("tokenizer.ggml.merges", GgufValue::texts({"ab"}))},
      {"tokenizer.ggml.bos_token_id",
       set("tokenizer.ggml.bos_token_id", GgufValue::number<uint32_t>(4))},
      {"tokenizer.ggml.eos_token_id",
       set("tokenizer.ggml.eos_token_id", GgufValue::number<int32_t>(-1))},
      {"tokenizer.chat_template", set("tokenizer.chat_template", GgufValue::text("\xFF"))},
      {"tokenizer.ggml.scores", set("tokenizer.ggml.model", GgufValue::text("llama"))},
      {"at most 256",
       [](Content& content) {
         content.set("tokenizer.ggml.model", GgufValue::text("llama"));
         content.set("tokenizer.ggml.scores", GgufValue::numbers(std::vector<float>(4)));
         content.set("tokenizer.ggml.tokens",
                     GgufValue::texts({"a", std::string(257, 'b'), "ab", "<end>"}));
       }},
  };
  for (const auto& [part, change] : cases) {
    Content content = small();
    change(content);
    try {
      content.convert();
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      const std::string text = e.what();
      EXPECT_NE(text.find("model.gguf"), std::string::npos) << text;
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace walsh
