#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

struct Fixture {
  Normalizer normalizer;
  Vocabulary vocabulary;
  AddedTokens tokens;

  explicit Fixture(const std::vector<Json>& entries, const Json& normalizer_json = nullptr)
      : normalizer(normalizer_json, "normalizer"),
        vocabulary(Json{{"a", 0}, {"b", 1}}, "vocab"),
        tokens(Json(entries), normalizer, vocabulary, "added_tokens") {}
};

Json token(int id, const std::string& content, const Json& flags = Json::object()) {
  Json entry = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  entry.update(flags);
  return entry;
}

std::string show(const std::vector<AddedSegment>& segments, std::string_view text) {
  std::string out;
  for (const AddedSegment& segment : segments) {
    const auto [begin, end] = segment.span;
    out.append(segment.id < 0 ? "(" : "[").append(text.substr(begin, end - begin));
    out.append(segment.id < 0 ? ")" : "]");
  }
  return out;
}

std::string cut(const std::vector<Json>& entries, std::string_view text) {
  return show(Fixture(entries).tokens.split_raw(text, test::plenty()), text);
}

TEST(AddedTokens, AreCutOutLeftmostAndLongestFirst) {
  const std::vector<Json> entries = {token(2, "<s>"), token(3, "<s>x"), token(4, "s>xy")};
  EXPECT_EQ(cut(entries, "u<s>xyz<s><"), "(u)[<s>x](yz)[<s>](<)");
  EXPECT_EQ(cut(entries, "plain"), "(plain)");
  EXPECT_EQ(cut(entries, ""), "");
  EXPECT_EQ(cut({}, "x"), "(x)");
}

TEST(AddedTokens, StripTakesTheWhiteSpaceBeside) {
  EXPECT_EQ(cut({token(2, "<m>", {{"lstrip", true}})}, "a \u00A0<m> b"), "(a)[ \u00A0<m>]( b)");
  EXPECT_EQ(cut({token(2, "<m>", {{"rstrip", true}})}, "a <m> \nb"), "(a )[<m> \n](b)");
  EXPECT_EQ(cut({token(2, "<m>", {{"lstrip", true}, {"rstrip", true}})}, "<m> <m> "),
            "[<m> ][<m> ]");
}

TEST(AddedTokens, StrippedWhiteSpaceIsNoTokenOnceMore) {
  const std::vector<Json> tokens = {token(2, "<a>", {{"rstrip", true}}),
                                    token(3, " ", {{"rstrip", true}, {"lstrip", true}})};
  EXPECT_EQ(cut(tokens, "<a>  b"), "[<a>  ](b)");
  EXPECT_EQ(cut(tokens, "<a>x b"), "[<a>](x)[ ](b)");
}

TEST(AddedTokens, SingleWordsStandBetweenNonWordCharacters) {
  const std::vector<Json> entries = {token(2, "cat", {{"single_word", true}})};
  EXPECT_EQ(cut(entries, "cat"), "[cat]");
  EXPECT_EQ(cut(entries, "a cat, cats"), "(a )[cat](, cats)");
  EXPECT_EQ(cut(entries, "_cat cat\u0301 cat-"), "(_cat cat\u0301 )[cat](-)");
}

TEST(AddedTokens, NormalizedOnesAreSearchedInNormalizedText) {
  const Json lower = {{"type", "Lowercase"}};
  const std::vector<Json> entries = {token(2, "Yes", {{"normalized", true}}), token(3, "<S>")};
  const Fixture fixture(entries, lower);
  EXPECT_EQ(show(fixture.tokens.split_raw("Yes<S>", test::plenty()), "Yes<S>"), "(Yes)[<S>]");
  EXPECT_EQ(show(fixture.tokens.split_normalized("oh yes", test::plenty()), "oh yes"),
            "(oh )[yes]");
  EXPECT_EQ(*fixture.tokens.decoded_form(2), "yes");
  EXPECT_EQ(*fixture.tokens.decoded_form(3), "<S>");
  EXPECT_EQ(fixture.tokens.decoded_form(0), nullptr);
}

TEST(AddedTokens, ExtendTheVocabulary) {
  const std::vector<Json> entries = {token(0, "a", {{"special", true}}), token(2, "<s>")};
  const Fixture fixture(entries);
  EXPECT_EQ(fixture.vocabulary.find("<s>"), 2);
  EXPECT_EQ(fixture.vocabulary.end(), 3);
  EXPECT_TRUE(fixture.tokens.is_special(0));
  EXPECT_FALSE(fixture.tokens.is_special(2));
}

TEST(AddedTokens, RefusesContradictions) {
  const auto error = [](const std::vector<Json>& entries, const Json& normalizer = nullptr) {
    return test::error_of([&] { Fixture fixture(entries, normalizer); });
  };
  EXPECT_THAT(error({token(5, "<s>")}), testing::HasSubstr("has the id 5, but its place gives 2"));
  EXPECT_THAT(error({token(1, "a")}), testing::HasSubstr("place gives 0"));
  EXPECT_THAT(error({token(2, "x"), token(2, "x")}), testing::HasSubstr("two added tokens"));
  EXPECT_THAT(error({token(2, "")}), testing::HasSubstr("0 bytes"));
  EXPECT_THAT(error({token(2, std::string(5000, 'x'))}), testing::HasSubstr("5000 bytes"));
  EXPECT_THAT(error({token(2, "X", {{"normalized", true}}), token(3, "x", {{"normalized", true}})},
                    {{"type", "Lowercase"}}),
              testing::HasSubstr("two added tokens"));
  EXPECT_THAT(error({token(2, "x", {{"weird", 1}})}), testing::HasSubstr("weird"));
}

// Returns the steps for splitting n bytes of `unit`.
uint64_t steps_for(const std::vector<Json>& entries, const std::string& unit, size_t n) {
  const Fixture fixture(entries);
  std::string text;
  while (text.size() < n)
    text += unit;
  StepBudget steps(UINT64_MAX);
  fixture.tokens.split_raw(text, steps);
  return steps.spent();
}

TEST(AddedTokens, StrippingPassesNoByteTwice) {
  constexpr size_t kBytes = 100'000;
  const std::vector<Json> tokens = {
      token(2, " ", {{"lstrip", true}}), token(3, "\n", {{"rstrip", true}}),
      token(4, "\t", {{"lstrip", true}, {"rstrip", true}}),
      token(5, "\r", {{"lstrip", true}, {"rstrip", true}, {"single_word", true}})};
  for (const std::string unit : {" ", "\n", "\t", "\r", " \n", "\n ", "\t \n", "\r \n\t", "\n\nx"})
    EXPECT_LE(steps_for(tokens, unit, kBytes), 10 * kBytes) << testing::PrintToString(unit);
}

TEST(AddedTokens, TokensThatAlmostMatchEverywhereEndAtTheBudget) {
  const std::vector<Json> entries = {token(2, std::string(4000, 'a') + "b")};
  const Fixture fixture(entries);
  const std::string text(100'000, 'a');
  StepBudget steps = StepBudget::for_text(text.size());
  EXPECT_THAT(test::error_of([&] { fixture.tokens.split_raw(text, steps); }, ErrorCode::limit),
              testing::StartsWith("added tokens: takes more than"));
}

}  // namespace
}  // namespace walsh
