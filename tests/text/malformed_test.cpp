// Tests broken, hostile and unsupported tokenizer.json texts: each gives one Error that names the
// place.
#include <gtest/gtest.h>

#include "io/json.h"
#include "text_test_util.h"

namespace walsh {
namespace {

using test::error_of;

Json base() {
  return parse_json(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": [["a", "b"]]}})",
                    "base");
}

std::string load(std::string_view json) {
  return error_of([&] { Tokenizer::from_json(json, "", "t.json"); });
}

// Replaces the value at a JSON pointer; a null text removes it.
struct Mutation {
  const char* pointer;
  const char* value;
  const char* message;  // part of what the Error must say
};

constexpr Mutation kMutations[] = {
    {"/version", "\"2.0\"", "version \"2.0\""},
    {"/version", "1", "version"},
    {"/extra", "1", "key \"extra\" is not known"},
    {"/model", "null", "key \"model\" is missing"},
    {"/model", "[]", "key \"model\""},
    {"/model/type", "\"Unigram\"", "the model \"Unigram\" is not supported"},
    {"/model/type", "\"WordPiece\"", "\"WordPiece\""},
    {"/model/type", "7", "type"},
    {"/model/dropout", "0.1", "dropout"},
    {"/model/dropout", "true", "dropout"},
    {"/model/continuing_subword_prefix", "\"##\"", "continuing_subword_prefix"},
    {"/model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
    {"/model/mystery", "true", "\"mystery\""},
    {"/model/vocab", "null", "vocab"},
    {"/model/vocab", "[\"a\"]", "vocab"},
    {"/model/vocab/a", "-1", "\"a\" has the id -1"},
    {"/model/vocab/a", "2147483648", "2147483648"},
    {"/model/vocab/a", "18446744073709551615", "18446744073709551615"},
    {"/model/vocab/a", "1000000000", "in a vocabulary of 4 tokens"},
    {"/model/vocab/a", "1.5", "1.5"},
    {"/model/vocab/a", "\"0\"", "\"a\" has the id"},
    {"/model/vocab/a", "null", "\"a\" has the id null"},
    {"/model/vocab/a", "1", "has the same id as"},
    {"/model/merges", "null", "merges"},
    {"/model/merges", "{}", "merges"},
    {"/model/merges/0", "\"ab\"", "merges[0]"},
    {"/model/merges/0", "\"a b c\"", "merges[0]"},
    {"/model/merges/0", "[\"a\"]", "merges[0]"},
    {"/model/merges/0", "[\"a\", 1]", "merges[0]"},
    {"/model/merges/0", "[\"a\", \"z\"]", "\"z\" is not in the vocabulary"},
    {"/model/merges/0", "[\"b\", \"a\"]", "\"ba\" is not in the vocabulary"},
    {"/model/merges/0", "5", "merges[0]"},
    {"/model/unk_token", "3", "unk_token"},
    {"/model/byte_fallback", "\"yes\"", "byte_fallback"},
    {"/model/ignore_merges", "1", "ignore_merges"},
    {"/added_tokens", "{}", "added_tokens"},
    {"/added_tokens/0", "\"<s>\"", "added_tokens[0]"},
    {"/added_tokens/0/id", "9", "added_tokens[0]"},
    {"/added_tokens/0/id", "-4", "added_tokens[0]"},
    {"/added_tokens/0/id", "null", "\"id\" is missing"},
    {"/added_tokens/0/content", "\"\"", "0 bytes"},
    {"/added_tokens/0/content", "null", "\"content\" is missing"},
    {"/added_tokens/0/lstrip", "\"x\"", "lstrip"},
    {"/added_tokens/0/special", "null", "special"},
    {"/normalizer", "\"NFC\"", "normalizer"},
    {"/normalizer/type", "\"Nmt\"", "the normalizer \"Nmt\" is not supported"},
    {"/normalizer/type", "null", "\"type\" is missing"},
    {"/normalizer", R"({"type": "Sequence"})", "normalizers"},
    {"/normalizer", R"({"type": "Sequence", "normalizers": [3]})", "normalizer"},
    {"/normalizer", R"({"type": "Replace", "pattern": {}, "content": ""})", "pattern"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})", "empty"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})", "pattern"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"String": "a", "Regex": "a"},
                        "content": ""})",
     "either"},
    {"/normalizer", R"({"type": "Strip", "strip_left": true})", "strip_right"},
    {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})", "BertPreTokenizer"},
    {"/pre_tokenizer/add_prefix_space", "null", "add_prefix_space"},
    {"/pre_tokenizer/use_regex", "3", "use_regex"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "one character"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": ""})", "one character"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
     "last"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
                           "add_prefix_space": false})",
     "contradicts"},
    {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Odd",
                           "invert": false})",
     "\"Odd\""},
    {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed"})",
     "invert"},
    {"/post_processor/type", "\"BertProcessing\"", "BertProcessing"},
    {"/post_processor/single", "null", "single"},
    {"/post_processor/single", "[]", "sequence A"},
    {"/post_processor/single/0", "{}", "either"},
    {"/post_processor/single/0/SpecialToken/id", "\"<x>\"", "\"<x>\" is not in special_tokens"},
    {"/post_processor/single/1/Sequence/id", "\"B\"", "sequence A"},
    {"/post_processor/special_tokens/<s>/ids/0", "5", "no id of the vocabulary"},
    {"/post_processor/special_tokens/<s>/ids/0", "-1", "no id of the vocabulary"},
    {"/post_processor/special_tokens/<s>/ids", "4", "ids"},
    {"/decoder/type", "\"CTC\"", "the decoder \"CTC\" is not supported"},
    {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "start"},
    {"/decoder", R"({"type": "Strip", "content": "", "start": 1, "stop": 0})", "one character"},
    {"/decoder", R"({"type": "Fuse", "hard": true})", "\"hard\""},
};

TEST(MalformedTokenizer, TheBaseOfTheMutationsIsFine) {
  const Tokenizer tokenizer = Tokenizer::from_json(base().dump(), "", "t.json");
  EXPECT_EQ(tokenizer.encode("abc", true), (std::vector<int32_t>{4, 2, 3}));
  Json without_dropout = base();
  without_dropout["model"]["dropout"] = 0.0;
  EXPECT_EQ(Tokenizer::from_json(without_dropout.dump(), "", "t.json").encode("abc", true),
            tokenizer.encode("abc", true));
}

TEST(MalformedTokenizer, EveryBadValueIsRefusedByName) {
  for (const Mutation& mutation : kMutations) {
    Json json = base();
    json[Json::json_pointer(mutation.pointer)] = parse_json(mutation.value, mutation.pointer);
    const std::string message = load(json.dump());
    EXPECT_THAT(message, testing::StartsWith("t.json")) << mutation.pointer << mutation.value;
    EXPECT_THAT(message, testing::HasSubstr(mutation.message))
        << mutation.pointer << " = " << mutation.value;
  }
}

TEST(MalformedTokenizer, TextThatIsNoJsonObjectIsRefused) {
  for (const char* text : {"", " ", "null", "[]", "3", "\"BPE\"", "{", "{}", "{\"model\": {}}",
                           "{]", "{\"model\": \"\xFF\"}", "{\"model\": NaN}"}) {
    EXPECT_THAT(load(text), testing::StartsWith("t.json")) << text;
  }
}

TEST(MalformedTokenizer, EveryTruncationIsRefused) {
  const std::string text = base().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_NE(load(std::string_view(text).substr(0, size)), "") << size;
  }
}

TEST(MalformedTokenizer, DeepAndWideNestingIsRefused) {
  Json json = base();
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 80; ++i) {
    nested = {{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  }
  json["normalizer"] = nested;
  EXPECT_NE(load(json.dump()), "");
  EXPECT_NE(load(std::string(100'000, '[')), "");
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", Json(1000, Json{{"type", "Whitespace"}})}};
  EXPECT_THAT(load(json.dump()), testing::HasSubstr("more than 64"));
}

TEST(MalformedTokenizer, ChainsThatGrowExponentiallyEndWithAnError) {
  Json json = base();
  const Json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const std::vector<Json> chain(60, doubling);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", chain}};
  const auto encode = [&] { Tokenizer::from_json(json.dump(), "", "t.json").encode("a", true); };
  EXPECT_THAT(error_of(encode, ErrorCode::limit), testing::HasSubstr("would grow"));
  json["normalizer"] = nullptr;
  json["decoder"] = {{"type", "Sequence"}, {"decoders", chain}};
  const auto decode = [&] {
    Tokenizer::from_json(json.dump(), "", "t.json").decode(std::vector<int32_t>{0}, true);
  };
  EXPECT_THAT(error_of(decode, ErrorCode::limit), testing::HasSubstr("would grow"));
  json["decoder"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {base()["pre_tokenizer"], base()["pre_tokenizer"]}}};
  EXPECT_THAT(load(json.dump()), testing::HasSubstr("second ByteLevel"));
}

TEST(MalformedTokenizer, DuplicateTokensAreRefused) {
  EXPECT_NE(load(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"), "");
}

}  // namespace
}  // namespace walsh
