#include "grammar/gbnf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar_test_util.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::gbnf;
using test::matches;
using testing::HasSubstr;

std::string refusal(std::string_view text, ErrorCode code = ErrorCode::bad_input) {
  try {
    gbnf(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.reason();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(Gbnf, LiteralsAlternativesAndNames) {
  const auto graph = gbnf(R"(
    root ::= greeting " " ("you" | name) # a comment
    greeting ::= "hi" |
      "hello"
    name ::= "Ann"
           | "Bob"
  )");
  EXPECT_TRUE(matches(graph, "hi you"));
  EXPECT_TRUE(matches(graph, "hello Bob"));
  EXPECT_FALSE(matches(graph, "hello"));
  EXPECT_FALSE(matches(graph, "hi you "));
  EXPECT_FALSE(matches(graph, "hiyou"));
}

TEST(Gbnf, LinesEndRulesWhereNoAlternativeFollows) {
  EXPECT_TRUE(matches(gbnf("root ::= (\n \"a\"\n \"c\" | \"b\"\n)"), "ac"));
  EXPECT_TRUE(matches(gbnf("root ::= \"a\"  # one\n\n | \"b\"\r\n"), "b"));
  EXPECT_THAT(refusal("root ::= \"a\"\n\"b\""), HasSubstr("line 2, column 1"));
}

TEST(Gbnf, Repetitions) {
  const auto graph = gbnf(R"(root ::= "a"* "b"+ "c"? "d"{2} "e"{2,} "f"{1,3} "g"{,2})");
  EXPECT_TRUE(matches(graph, "bddeef"));
  EXPECT_TRUE(matches(graph, "aaabbcddeeeefffgg"));
  EXPECT_FALSE(matches(graph, "addeef"));
  EXPECT_FALSE(matches(graph, "bdeef"));
  EXPECT_FALSE(matches(graph, "bddef"));
  EXPECT_FALSE(matches(graph, "bddeeffff"));
  EXPECT_FALSE(matches(graph, "bddeefggg"));
  EXPECT_TRUE(matches(gbnf(R"(root ::= "ab"*)"), "abab"));
  EXPECT_FALSE(matches(gbnf(R"(root ::= "ab"*)"), "abb"));
  EXPECT_TRUE(matches(gbnf(R"(root ::= ("a"? "b"?)* "c")"), "abbac"));
  EXPECT_TRUE(matches(gbnf(R"(root ::= "a"{0})"), ""));
}

TEST(Gbnf, ClassesAndEscapes) {
  const auto graph = gbnf(R"(root ::= [a-c\]x-] [^a\n] "\x41\u00e9\U0001F600\"\\" .)");
  EXPECT_TRUE(matches(graph, "]zA\xC3\xA9\xF0\x9F\x98\x80\"\\\xE2\x82\xAC"));
  EXPECT_TRUE(matches(graph,
                      "-\xC3\xA9"
                      "A\xC3\xA9\xF0\x9F\x98\x80\"\\\n"));
  EXPECT_FALSE(matches(graph, "dzA\xC3\xA9\xF0\x9F\x98\x80\"\\x"));
  EXPECT_FALSE(matches(graph, "aaA\xC3\xA9\xF0\x9F\x98\x80\"\\x"));
}

TEST(Gbnf, EveryRangeOfCharactersIsExactInUtf8) {
  const std::pair<char32_t, char32_t> ranges[] = {
      {0x20, 0x7F},      {0x7F, 0x80},     {0x7FF, 0x800},     {0x123, 0x5678},
      {0xFFFF, 0x10000}, {0xD7FF, 0xE000}, {0x1F600, 0x1F64F}, {0x10FFF0, 0x10FFFF}};
  for (const auto& [first, last] : ranges) {
    grammar::GraphBuilder builder("set");
    const auto root = builder.rule("root");
    builder.one_of(builder.start(root), grammar::normal_set({{first, last}}), builder.end(root));
    const auto graph = builder.finish(root);
    for (char32_t code = 1; code <= 0x10FFFF; code += code < 0x900 ? 3 : 117) {
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      std::string text;
      append_utf8(code, text);
      ASSERT_EQ(matches(graph, text), code >= first && code <= last) << static_cast<uint32_t>(code);
    }
    EXPECT_FALSE(matches(graph, "\xED\xA0\x80"));  // a surrogate
    EXPECT_FALSE(matches(graph, "\xC0\xAF"));      // an overlong form
  }
}

TEST(Gbnf, RecursionAndAmbiguityAreFollowed) {
  const auto nested = gbnf(R"G(root ::= "(" root* ")")G");
  EXPECT_TRUE(matches(nested, "(()(()))"));
  EXPECT_FALSE(matches(nested, "(()"));
  // Every text has exponentially many derivations.
  const auto ambiguous = gbnf(R"(
    root ::= s
    s ::= "a" s s | "a" s "b" | "a" s "b"* | "b" | ""
  )");
  EXPECT_TRUE(matches(ambiguous, std::string(100, 'a') + std::string(90, 'b')));
  EXPECT_FALSE(matches(ambiguous, "aac"));
}

TEST(Gbnf, WhatIsWrongIsToldWithItsPlace) {
  EXPECT_THAT(refusal("root ::= \"a\" other"), HasSubstr("line 1, column 14: there is no rule"));
  EXPECT_THAT(refusal("a ::= \"a\""), HasSubstr("there is no rule 'root'"));
  EXPECT_THAT(refusal(""), HasSubstr("there is no rule 'root'"));
  EXPECT_THAT(refusal("root ::= \"a"), HasSubstr("expected a character, found the end"));
  EXPECT_THAT(refusal("root ::= [b-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(refusal("root ::= (\"a\""), HasSubstr("expected )"));
  EXPECT_THAT(refusal("root ::= \"a\"{3,2}"), HasSubstr("below the lower bound"));
  EXPECT_THAT(refusal("root ::= \"\\q\""), HasSubstr("after a backslash"));
  EXPECT_THAT(refusal("root ::= \"\\ud800\""), HasSubstr("not a character"));
  EXPECT_THAT(refusal("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("is there already"));
  EXPECT_THAT(refusal("root := \"a\""), HasSubstr("expected ::="));
  EXPECT_THAT(refusal("root ::= \"\xFF\""), HasSubstr("not UTF-8"));
}

TEST(Gbnf, LeftRecursionIsRefused) {
  EXPECT_THAT(refusal("root ::= root \"a\" | \"a\""), HasSubstr("left-recursive"));
  EXPECT_THAT(refusal("root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\""),
              HasSubstr("left-recursive"));
  EXPECT_THAT(refusal("root ::= a | \"x\"\na ::= (root | \"q\")* \"y\""),
              HasSubstr("left-recursive"));
  EXPECT_TRUE(matches(gbnf("root ::= \"a\" root | \"a\""), std::string(5000, 'a')));
}

TEST(Gbnf, WhatHasNoEndIsRefused) {
  EXPECT_THAT(refusal("root ::= \"a\" root"), HasSubstr("no finite text"));
  EXPECT_TRUE(matches(gbnf("root ::= \"a\" root | \"b\" | \"c\" x\nx ::= \"d\" x"), "aab"));
  EXPECT_FALSE(matches(gbnf("root ::= \"b\" | \"c\" x\nx ::= \"d\" x"), "cd"));
}

TEST(Gbnf, AClassOfNoCharactersIsRefused) {
  for (const char* text : {"root ::= []", "root ::= [^\\x00-\\U0010FFFF]"})
    EXPECT_THAT(refusal(text), HasSubstr("matches nothing"));
}

TEST(Gbnf, LargeNumbersOfRepetitionsAreExact) {
  const auto graph = gbnf("root ::= (\"a\" | \"ab\"){5000,6000}");
  for (const size_t count : {4999, 5000, 5500, 6000, 6001}) {
    EXPECT_EQ(matches(graph, std::string(count, 'a')), count >= 5000 && count <= 6000) << count;
    EXPECT_EQ(matches(graph, std::string(count - 1, 'a') + "ab"), count >= 5000 && count <= 6000);
  }
  EXPECT_TRUE(matches(gbnf("root ::= [a-z]{1000000}"), std::string(1000000, 'q')));
}

TEST(Gbnf, SizeIsBounded) {
  std::string lines = "root ::= x0\n";
  for (int i = 0; i < 100; ++i)
    lines += fmt::format("x{} ::= \"a\"{{1000000}} x{}\n", i, i + 1);
  refusal(lines + "x100 ::= \"b\"", ErrorCode::limit);
  EXPECT_NO_THROW(gbnf("root ::= ((((\"a\"{99}){99}){99}){99}){999999}"));
  refusal("root ::= " + std::string(1000, '('));
  refusal("root ::= " + std::string(2 << 20, ' '), ErrorCode::limit);
  // Doubling costs nothing: rules are called, not copied.
  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 200; ++i) {
    const std::string next = "a" + std::to_string(i + 1);
    doubling += "a" + std::to_string(i) + " ::= " + next + " " + next + "\n";
  }
  EXPECT_NO_THROW(gbnf(doubling + "a200 ::= \"x\" | \"\""));
  std::string deep = "root ::= a0\n";
  for (int i = 0; i < 300; ++i)
    deep += "a" + std::to_string(i) + " ::= \"(\" a" + std::to_string(i + 1) + " \")\"\n";
  EXPECT_THAT(refusal(deep + "a300 ::= \"x\"", ErrorCode::limit), HasSubstr("300 nested rules"));
}

}  // namespace
}  // namespace walsh
