#include "grammar/token_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "grammar/grammar_test_util.h"
#include "grammar/json_schema.h"
#include "grammar/random_schema.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using grammar::TokenGrammar;
using grammar::TokenMatcher;
using testing::HasSubstr;

std::shared_ptr<const TokenGrammar> token_grammar(std::string_view text) {
  return std::make_shared<TokenGrammar>(test::gbnf(text), test::small_vocabulary(), "grammar");
}

std::vector<std::string> allowed_texts(TokenMatcher& matcher, const TokenGrammar& compiled) {
  std::vector<std::string> texts;
  const auto allowed = matcher.allowed();
  for (size_t id = 0; id < compiled.vocabulary().size(); ++id)
    if (allowed->has(static_cast<int32_t>(id)))
      texts.push_back(compiled.vocabulary().text(static_cast<int32_t>(id)));
  return texts;
}

TEST(TokenGrammar, AllowsTheTokensThatTheTextCanGoOnWith) {
  const auto compiled = token_grammar(R"(root ::= "the hello" | "true" [0-9]{2})");
  TokenMatcher matcher(compiled);
  EXPECT_THAT(allowed_texts(matcher, *compiled),
              testing::UnorderedElementsAre("t", "the ", "true"));
  EXPECT_FALSE(matcher.accept('x'));
  EXPECT_TRUE(matcher.accept(256));  // true
  EXPECT_FALSE(matcher.complete());
  EXPECT_EQ(allowed_texts(matcher, *compiled).size(), 11u);  // ten digits and 12
  EXPECT_TRUE(matcher.accept('7'));
  EXPECT_EQ(allowed_texts(matcher, *compiled).size(), 10u);
  EXPECT_TRUE(matcher.accept('7'));
  EXPECT_TRUE(matcher.complete());
  EXPECT_FALSE(matcher.can_continue());
  EXPECT_TRUE(matcher.allowed()->empty());
}

// The short cut for plain characters allows what following each token by itself does.
TEST(TokenGrammar, AllowsExactlyWhatCanBeAccepted) {
  for (const char* text :
       {R"(root ::= [^"]*)", R"(root ::= [a-z ]{0,7} "!")", R"(root ::= .{0,4})",
        R"(root ::= [^\x00-\x1f\x7f"\\]{0,5} "x")", R"G(root ::= ("the " | "hello")* [^h]*)G",
        R"(root ::= [\u0000-\u00ff]*)", R"(root ::= ([^<] | "<" [^a])* "<a>")"}) {
    const auto compiled = token_grammar(text);
    Random random(7);
    for (int round = 0; round < 20; ++round) {
      TokenMatcher matcher(compiled);
      for (int i = 0; i < 12; ++i) {
        const auto allowed = matcher.allowed();
        std::vector<int32_t> choice;
        for (int32_t id = 0; id < static_cast<int32_t>(compiled->vocabulary().size()); ++id) {
          TokenMatcher copy = matcher;
          ASSERT_EQ(allowed->has(id), copy.accept(id)) << text << " " << id;
          if (allowed->has(id)) choice.push_back(id);
        }
        if (choice.empty()) break;
        matcher.accept(choice[random.below(choice.size())]);
      }
    }
  }
}

TEST(TokenGrammar, MasksLogitsAndLetsTheTextEndWhereItMay) {
  const auto compiled = token_grammar(R"(root ::= "a" "b"?)");
  TokenMatcher matcher(compiled);
  const std::vector<int32_t> ends = {3, 200};
  std::vector<float> logits(compiled->vocabulary().size(), 1.0f);
  const auto left = [&] {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < logits.size(); ++i)
      if (std::isfinite(logits[i])) ids.push_back(static_cast<int32_t>(i));
    std::fill(logits.begin(), logits.end(), 1.0f);
    return ids;
  };
  EXPECT_TRUE(mask_logits(matcher, ends, logits));
  EXPECT_THAT(left(), testing::ElementsAre('a'));
  matcher.accept('a');
  EXPECT_TRUE(mask_logits(matcher, ends, logits));
  EXPECT_THAT(left(), testing::ElementsAre(3, 'b', 200));
  matcher.accept('b');
  EXPECT_TRUE(mask_logits(matcher, ends, logits));
  EXPECT_THAT(left(), testing::ElementsAre(3, 200));
  EXPECT_FALSE(mask_logits(matcher, {}, logits));
}

TEST(TokenGrammar, SpecialTokensAreReadOnlyWhereTheyAreAskedFor) {
  const auto vocabulary = std::make_shared<grammar::TokenVocabulary>(
      std::vector<std::string>{"<", "b>", "\xFF<b>", "x", "<b>"});
  grammar::GraphBuilder builder("test");
  const auto root = builder.rule("root");
  const auto loop = builder.start(root);
  builder.one_of(loop, grammar::complement({}), loop);
  builder.empty(builder.text(loop, "\xFF<b>"), builder.end(root));
  const auto compiled = std::make_shared<TokenGrammar>(builder.finish(root), vocabulary, "test");
  TokenMatcher matcher(compiled);
  EXPECT_TRUE(matcher.allowed()->has(4));
  EXPECT_TRUE(matcher.accept(4));
  EXPECT_FALSE(matcher.complete());
  EXPECT_TRUE(matcher.accept(2));
  EXPECT_TRUE(matcher.complete());
}

TEST(TokenGrammar, MemoryIsBoundedHoweverManyStatesATextHas) {
  // Every character has a state of its own, and every one of them a mask.
  const auto compiled = token_grammar(R"(root ::= ([a-z] [a-z0-9] "-"?){0,20000})");
  TokenMatcher matcher(compiled);
  Random random(1);
  for (int i = 0; i < 8000; ++i) {
    ASSERT_FALSE(matcher.allowed()->empty());
    ASSERT_TRUE(matcher.accept('a' + static_cast<int32_t>(random.below(26))));
  }
  EXPECT_TRUE(matcher.complete());
}

TEST(TokenGrammar, WhatIsTooAmbiguousIsRefusedWithinItsSteps) {
  // After n characters any pair of counters is possible.
  const auto compiled =
      token_grammar(R"G(root ::= ((("a"{0,300} "a"*){0,300} "a"?){0,300}){0,300})G");
  try {
    TokenMatcher matcher(compiled);
    for (int i = 0; i < 3000; ++i)
      ASSERT_TRUE(matcher.accept('a'));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_THAT(e.what(), HasSubstr("ambiguous"));
  }
}

TEST(TokenGrammar, RandomTextsOfRandomSchemasAreValid) {
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    const OrderedJson schema = test::RandomSchema(random).make(3);
    grammar::GraphBuilder builder("schema");
    const auto root = add_json_schema(builder, schema);
    const auto compiled =
        std::make_shared<TokenGrammar>(builder.finish(root), test::small_vocabulary(), "schema");
    for (int round = 0; round < 3; ++round) {
      const auto text = test::random_text(compiled, random, 4000);
      ASSERT_TRUE(text.complete) << schema << "\n" << text.text;
      const OrderedJson value =
          parse_ordered_json(text.text, "answer", {.refuse_duplicate_keys = false});
      ASSERT_TRUE(test::is_valid(schema, value)) << schema << "\n" << text.text;
    }
  }
}

}  // namespace
}  // namespace walsh
