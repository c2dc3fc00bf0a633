#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

using Strings = std::vector<std::string>;

Strings words(std::string_view json, std::string_view text, bool at_start = true) {
  Strings out;
  PreTokenizer(parse_json(json, "test"), "pre_tokenizer")
      .split(text, at_start, test::plenty(),
             [&](std::string_view word, bool) { out.emplace_back(word); });
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

// Many published tokenizers have this pattern. "\\s*[\\r\\n]+" looks at a run of spaces twice.
TEST(PreTokenizer, Llama3TakesMegabytesOfSpacesInProportionalSteps) {
  const PreTokenizer splitter(
      parse_json(test::read_text(test::data_path("llama3.json")), "llama3")["pre_tokenizer"],
      "pre_tokenizer");
  const std::string text(12'000'000, ' ');
  StepBudget steps = StepBudget::for_text(text.size());
  size_t words = 0, bytes = 0;
  splitter.split(text, true, steps, [&](std::string_view word, bool) {
    ++words;
    bytes += word.size();
  });
  EXPECT_EQ(words, 1u);
  EXPECT_EQ(bytes, 2 * text.size()) << "each space is a character of two bytes";
  EXPECT_LE(steps.spent(), 10 * text.size());
}

TEST(PreTokenizer, HostilePatternsEndAtTheBudgetOfTheText) {
  const std::string text(400'000, 'a');
  for (const char* pattern : {"a*b|a", "(?:.*)*(?:.*)*(?:.*)*x", ".*x|.", "(?=.*b)a|a"}) {
    const Json json = {{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
    const PreTokenizer splitter(json, "pre_tokenizer");
    StepBudget steps = StepBudget::for_text(text.size());
    const auto split = [&] { splitter.split(text, true, steps, [](std::string_view, bool) {}); };
    EXPECT_THAT(test::error_of(split, ErrorCode::limit), testing::StartsWith("pre_tokenizer: "))
        << pattern;
  }
}

TEST(PreTokenizer, PiecesOfATextShareItsBudget) {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json hostile = {{"type", "Split"},
                        {"pattern", {{"Regex", "(?:a?){12}b|a"}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
  const PreTokenizer splitter(Json{{"type", "Sequence"}, {"pretokenizers", {digits, hostile}}},
                              "pre_tokenizer");
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += "aaaaaaaaaaaa1";
  StepBudget steps(1'000'000);
  const auto split = [&] { splitter.split(text, true, steps, [](std::string_view, bool) {}); };
  EXPECT_NE(test::error_of(split, ErrorCode::limit), "");
}

}  // namespace
}  // namespace walsh
