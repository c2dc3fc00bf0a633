#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

using Strings = std::vector<std::string>;

Strings words(std::string_view json, std::string_view text, bool at_start = true) {
  Strings out;
  PreTokenizer(parse_json(json, "test"), "pre_tokenizer")
      .split(text, at_start, [&](std::string_view word, bool) { out.emplace_back(word); });
  return out;
}

TEST(PreTokenizer, NullGivesTheTextAsOneWord) {
  EXPECT_EQ(words("null", "a b"), (Strings{"a b"}));
  EXPECT_EQ(words("null", ""), Strings{});
}

TEST(PreTokenizer, ByteLevelSplitsAndMapsBytes) {
  const char* plain = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})";
  EXPECT_EQ(words(plain, "it's  \u00E9\n"),
            (Strings{"it", "'s", "\u0120", "\u0120\u00C3\u00A9", "\u010A"}));
  const char* prefixed = R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})";
  EXPECT_EQ(words(prefixed, "a b"), (Strings{"\u0120"
                                             "a\u0120"
                                             "b"}));
  EXPECT_EQ(words(prefixed, " a"), (Strings{"\u0120"
                                            "a"}));
}

TEST(PreTokenizer, MetaspacePrependsAsTheSchemeSays) {
  const auto json = [](const std::string& rest) {
    return R"({"type": "Metaspace", "replacement": "_")" + rest + "}";
  };
  EXPECT_EQ(words(json(""), "a  b"), (Strings{"_a", "_", "_b"}));
  EXPECT_EQ(words(json(R"(, "prepend_scheme": "never")"), "a b"), (Strings{"a", "_b"}));
  EXPECT_EQ(words(json(R"(, "prepend_scheme": "first")"), "a b"), (Strings{"_a", "_b"}));
  EXPECT_EQ(words(json(R"(, "prepend_scheme": "first")"), "a b", false), (Strings{"a", "_b"}));
  EXPECT_EQ(words(json(R"(, "split": false)"), " a b"), (Strings{"_a_b"}));
  EXPECT_EQ(words(json(R"(, "add_prefix_space": false)"), "a"), (Strings{"a"}));
  EXPECT_EQ(words(json(R"(, "add_prefix_space": true, "str_rep": "_")"), "_a"), (Strings{"_a"}));
}

TEST(PreTokenizer, OnlyTheFirstWordIsAtTheStart) {
  const char* json = R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})";
  EXPECT_EQ(words(json, "a b"), (Strings{"_a", "b"}));
  EXPECT_EQ(words(json, " a b"), (Strings{"a", "b"}));
}

TEST(PreTokenizer, SplitsAtCharacterClasses) {
  EXPECT_EQ(words(R"({"type": "Digits", "individual_digits": true})", "a12\u00BD"),
            (Strings{"a", "1", "2", "\u00BD"}));
  EXPECT_EQ(words(R"({"type": "Digits", "individual_digits": false})", "a12b"),
            (Strings{"a", "12", "b"}));
  EXPECT_EQ(words(R"({"type": "Punctuation"})", "a,\u2026b"), (Strings{"a", ",", "\u2026", "b"}));
  EXPECT_EQ(words(R"({"type": "Punctuation", "behavior": "Removed"})", "a,b"), (Strings{"a", "b"}));
  EXPECT_EQ(words(R"({"type": "WhitespaceSplit"})", " a\u00A0\tb-c "), (Strings{"a", "b-c"}));
  EXPECT_EQ(words(R"({"type": "Whitespace"})", "a_1, e\u0301--x"),
            (Strings{"a_1", ",", "e\u0301", "--", "x"}));
}

TEST(PreTokenizer, SplitHonoursPatternBehaviorAndInversion) {
  const char* json = R"({"type": "Split", "pattern": {"Regex": "\\d+"},
      "behavior": "Removed", "invert": true})";
  EXPECT_EQ(words(json, "a12b3"), (Strings{"12", "3"}));
  const char* literal = R"({"type": "Split", "pattern": {"String": "."},
      "behavior": "MergedWithPrevious", "invert": false})";
  EXPECT_EQ(words(literal, "a.b."), (Strings{"a.", "b."}));
}

TEST(PreTokenizer, RefusesOthersByName) {
  EXPECT_EQ(test::error_of([] { words(R"({"type": "UnicodeScripts"})", "a"); }),
            "pre_tokenizer: the pre-tokenizer \"UnicodeScripts\" is not supported");
}

}  // namespace
}  // namespace walsh
