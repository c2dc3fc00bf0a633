// Tests that reasoning ends after so many tokens.
#include "generate/thinking_budget.h"

#include <gtest/gtest.h>

#include <memory>

#include "generate/token_chooser.h"

namespace walsh {
namespace {

// Tokens are letters, parts of marks, and the first byte of a character and the others.
const std::vector<std::string> kTexts = {"a",      "<think>", "</think>", "\n</",
                                         "think>", "\xe2",    "\x82",     "\xac"};

ThinkingLimit limit(int64_t tokens, bool inside) {
  ThinkingLimit limit;
  limit.tokens = tokens;
  limit.begin = "<think>";
  limit.end = "</think>";
  limit.inside = inside;
  limit.forced = {2, 3};
  limit.bytes = [](int32_t token) { return std::string_view(kTexts[static_cast<size_t>(token)]); };
  return limit;
}

// Returns what a model that wants `wished` writes.
std::vector<int32_t> written(const ThinkingLimit& limit, const std::vector<int32_t>& wished) {
  ThinkingBudget budget(limit);
  std::vector<int32_t> text;
  for (const int32_t wish : wished) {
    const int32_t forced = budget.forced();
    text.push_back(forced >= 0 ? forced : wish);
    budget.accept(text.back());
  }
  return text;
}

using Tokens = std::vector<int32_t>;

TEST(ThinkingBudgetTest, TheEndIsForcedAfterSoManyTokens) {
  EXPECT_EQ(written(limit(3, true), {0, 0, 0, 0, 0, 0, 0}), (Tokens{0, 0, 0, 2, 3, 0, 0}));
  EXPECT_EQ(written(limit(0, true), {0, 0, 0}), (Tokens{2, 3, 0}));
}

TEST(ThinkingBudgetTest, ReasoningThatBeginsInTheTextIsCountedFromThere) {
  EXPECT_EQ(written(limit(1, false), {0, 0, 1, 0, 0, 0, 0}), (Tokens{0, 0, 1, 0, 2, 3, 0}));
  EXPECT_EQ(written(limit(0, false), {0, 1, 0, 0, 0}), (Tokens{0, 1, 2, 3, 0}));
}

TEST(ThinkingBudgetTest, ReasoningThatEndsByItselfIsLeftAlone) {
  EXPECT_EQ(written(limit(3, true), {0, 2, 0, 0, 0, 0}), (Tokens{0, 2, 0, 0, 0, 0}));
  EXPECT_EQ(written(limit(3, true), {3, 4, 0, 0, 0, 0}), (Tokens{3, 4, 0, 0, 0, 0}))
      << "the mark is made of two tokens";
}

TEST(ThinkingBudgetTest, CharactersAreNotCut) {
  EXPECT_EQ(written(limit(2, true), {0, 5, 6, 7, 0, 0, 0}), (Tokens{0, 5, 6, 7, 2, 3, 0}));
  EXPECT_EQ(written(limit(1, true), {5, 5, 5, 5, 5, 5, 5, 5}), (Tokens{5, 5, 5, 5, 5, 2, 3, 5}))
      << "what never becomes a character is";
}

TEST(ThinkingBudgetTest, TheChooserForcesTokensThatTheLogitsDoNotWant) {
  ChoiceOptions options;
  options.sampler.temperature = 0;
  options.thinking = std::make_shared<ThinkingLimit>(limit(2, true));
  EXPECT_FALSE(options.on_devices());
  TokenChooser chooser(options);
  const std::vector<float> logits = {5, 0, -9, -9, 0, 0, 0, 0};
  Tokens text;
  for (int i = 0; i < 6; ++i)
    text.push_back(*chooser.choose(logits));
  EXPECT_EQ(text, (Tokens{0, 0, 2, 3, 0, 0}));
  const TokenChooser copy = chooser;
  EXPECT_EQ(TokenChooser(copy).choose(logits), 0);
}

}  // namespace
}  // namespace walsh
