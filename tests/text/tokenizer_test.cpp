#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "io/json.h"
#include "text/utf8.h"
#include "text_test_util.h"
#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

using test::data_path;
using test::error_of;
using test::load_tokenizer;
using test::read_text;
using Ids = std::vector<int32_t>;

TEST(Tokenizer, AddsTheTemplatesTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = load_tokenizer(data_path("llama2.json"));
  const Ids plain = tokenizer.encode("the water", false);
  Ids with_bos = {1};
  with_bos.insert(with_bos.end(), plain.begin(), plain.end());
  EXPECT_EQ(tokenizer.encode("the water", true), with_bos);
  EXPECT_EQ(tokenizer.encode("", true), (Ids{1}));
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
}

TEST(Tokenizer, RecognizesSpecialTokensInTheTextEitherWay) {
  const Tokenizer tokenizer = load_tokenizer(data_path("llama3.json"));
  const int32_t end = tokenizer.token_id("<|end_of_text|>").value();
  EXPECT_EQ(tokenizer.encode("<|end_of_text|>", false), (Ids{end}));
  EXPECT_TRUE(tokenizer.is_special(end));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_EQ(tokenizer.decode(Ids{end}, true), "");
  EXPECT_EQ(tokenizer.decode(Ids{end}, false), "<|end_of_text|>");
}

TEST(Tokenizer, IgnoreMergesGivesWordsThatNoMergeReaches) {
  const Tokenizer tokenizer = load_tokenizer(data_path("llama3.json"));
  EXPECT_EQ(tokenizer.encode("waterstone", false), (Ids{*tokenizer.token_id("waterstone")}));
  EXPECT_GT(tokenizer.encode("waterstones", false).size(), 1u);
}

TEST(Tokenizer, IgnoreMergesKnowsOnlyTheModelsOwnWords) {
  Json document = parse_json(read_text(data_path("llama3.json")), "test");
  const Ids plain = Tokenizer::from_json(document.dump(), "", "t.json").encode("a zebra", false);
  const int32_t next = Tokenizer::from_json(document.dump(), "", "t.json").vocab_size();
  document["added_tokens"].push_back({{"id", next},
                                      {"content", "\u0120zebra"},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", false}});
  const Tokenizer tokenizer = Tokenizer::from_json(document.dump(), "", "t.json");
  EXPECT_EQ(tokenizer.encode("a zebra", false), plain);
  EXPECT_EQ(tokenizer.encode("\u0120zebra", false), Ids{next});
}

// A prefix is prepended to the piece that begins with the input's first character, whatever
// normalization made of it.
TEST(Tokenizer, MetaspaceFirstLooksAtTheInputBeforeItIsNormalized) {
  const Json vocab = {{"\u2581", 0},
                      {"a", 1},
                      {"b", 2},
                      {"\u2581"
                       "a",
                       3},
                      {" ", 4},
                      {"A", 5}};
  const auto encode = [&](const Json& normalizer, std::string_view text) {
    const Json document = {
        {"model",
         {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}, {"ignore_merges", true}}},
        {"normalizer", normalizer},
        {"pre_tokenizer",
         {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}}}};
    return Tokenizer::from_json(document.dump(), "", "t.json").encode(text, false);
  };
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_EQ(encode(strip, "a"), Ids{3});
  EXPECT_EQ(encode(strip, " a"), Ids{1});
  EXPECT_EQ(encode(strip, "a "), Ids{3});
  const auto replace = [](const char* regex, const char* content) {
    return Json{{"type", "Replace"}, {"pattern", {{"Regex", regex}}}, {"content", content}};
  };
  EXPECT_EQ(encode(replace("^b+", ""), "ba"), Ids{1});
  EXPECT_EQ(encode(replace("^b+", "a"), "b"), Ids{3});
  EXPECT_EQ(encode(replace("^b+", "a"), "bb"), Ids{1}) << "the last b is not the first character";
  EXPECT_EQ(encode({{"type", "Lowercase"}}, "A"), Ids{3});
  EXPECT_EQ(encode({{"type", "NFKC"}}, "\uFF41"), Ids{3});
}

TEST(Tokenizer, SkipsIdsThatItDoesNotKnow) {
  const Tokenizer tokenizer = load_tokenizer(data_path("gpt2.json"));
  const Ids ids = {INT32_MIN, -1, *tokenizer.token_id("a"), tokenizer.vocab_size(), INT32_MAX};
  EXPECT_EQ(tokenizer.decode(ids, false), "a");
  EXPECT_FALSE(tokenizer.token(-1).has_value());
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_EQ(tokenizer.token(tokenizer.vocab_size() - 1), "<|endoftext|>");
  EXPECT_FALSE(tokenizer.token(tokenizer.vocab_size()).has_value());
  EXPECT_FALSE(tokenizer.token_id("no such token").has_value());
}

TEST(Tokenizer, TakesBosAndEosFromTheConfiguration) {
  const std::string json = read_text(data_path("llama2.json"));
  const auto load = [&](std::string_view config) {
    return Tokenizer::from_json(json, config, "tokenizer.json");
  };
  const Tokenizer strings = load(R"({"bos_token": "<s>", "eos_token": "</s>", "other": [1]})");
  EXPECT_EQ(strings.bos(), 1);
  EXPECT_EQ(strings.eos(), 2);
  const Tokenizer objects = load(R"({"bos_token": null, "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(objects.bos(), std::nullopt);
  EXPECT_EQ(objects.eos(), 2);
  EXPECT_EQ(load("").bos(), 1);  // the template's
  EXPECT_EQ(load("").eos(), std::nullopt);
}

TEST(Tokenizer, RefusesABadConfiguration) {
  const std::string json = read_text(data_path("gpt2.json"));
  for (const char* config : {"[]", "{", "1", R"({"bos_token": 3})", R"({"eos_token": 7})",
                             R"({"eos_token": {"id": 3}})", R"({"bos_token": {"content": 1}})"}) {
    EXPECT_THAT(error_of([&] { Tokenizer::from_json(json, config, "tokenizer.json"); }),
                testing::StartsWith("tokenizer.json: tokenizer_config"))
        << config;
  }
}

TEST(Tokenizer, TreatsIllFormedInputAsReplacementCharacters) {
  const Tokenizer tokenizer = load_tokenizer(data_path("qwen2.json"));
  EXPECT_EQ(tokenizer.encode("a\xE2\x82z\xFF", false), tokenizer.encode("a\uFFFDz\uFFFD", false));
}

TEST(Tokenizer, MovesAndIsSharedBetweenThreads) {
  Tokenizer first = load_tokenizer(data_path("llama3.json"));
  const Tokenizer tokenizer = std::move(first);
  const std::string text = "the water, 12345 stones\n  and we're walking";
  const Ids expected = tokenizer.encode(text, true);
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Ids ids = tokenizer.encode(text, true);
        equal[t] += ids == expected && tokenizer.decode(ids, true) == text ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(equal, testing::Each(50));
}

TEST(StreamDecoder, StartsAfreshAfterFinish) {
  const Tokenizer tokenizer = load_tokenizer(data_path("mistral.json"));
  const Ids ids = tokenizer.encode("the \u6C34 water", true);
  StreamDecoder stream(tokenizer, true);
  for (int round = 0; round < 2; ++round) {
    std::string text;
    for (const int32_t id : ids) {
      text += stream.push(id);
    }
    EXPECT_EQ(text + stream.finish(), "the \u6C34 water");
  }
}

TEST(StreamDecoder, HoldsBackAnUnfinishedCharacter) {
  const Tokenizer tokenizer = load_tokenizer(data_path("gpt2.json"));
  StreamDecoder stream(tokenizer, false);
  EXPECT_EQ(stream.push(*tokenizer.token_id("\u00F0")), "");  // F0
  EXPECT_EQ(stream.push(*tokenizer.token_id("\u0141")), "");  // 9F
  EXPECT_EQ(stream.push(*tokenizer.token_id("a")),
            "\uFFFD"
            "a");
  EXPECT_EQ(stream.push(*tokenizer.token_id("\u00F0")), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, EndsWhereItIsAskedTo) {
  // One word, many words, and white space: the time goes into different parts.
  const std::atomic<bool> stopped = true;
  const StopScope scope(stopped);
  for (const std::string& text :
       {std::string(2'000'000, 'a'), std::string(2'000'000, ' '), std::string(2'000'000, '1')}) {
    const Tokenizer tokenizer = load_tokenizer(data_path("llama3.json"));
    try {
      tokenizer.encode(text, true);
      FAIL() << "it went on with " << text[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::interrupted) << text[0];
    }
  }
}

// These texts once would have taken quadratic time.
TEST(Tokenizer, EncodesAMegabyteWithoutAnyBreak) {
  const std::string words = [] {
    std::string text;
    while (text.size() < 1'000'000) {
      text += "theriver";
    }
    return text;
  }();
  std::string marks;
  while (marks.size() < 1'000'000) {
    marks += "\u0307\u0323";
  }
  for (const char* name : {"llama3", "qwen2", "llama2", "unusual"}) {
    const Tokenizer tokenizer = load_tokenizer(data_path(std::string(name) + ".json"));
    for (const std::string& text : {std::string(1'000'000, 'a'), std::string(1'000'000, ' ') + "x",
                                    std::string(1'000'000, '\n'), words, marks}) {
      const Ids ids = tokenizer.encode(text, false);
      EXPECT_GT(ids.size(), 1'000u) << name;
      if (name != std::string("unusual") && (text != marks || name != std::string("qwen2"))) {
        EXPECT_EQ(tokenizer.decode(ids, false), text) << name;
      }
    }
  }
}

}  // namespace
}  // namespace walsh
