// Tests regular expressions of whole texts; those of JSON strings are tested with the schemas.
#include <gtest/gtest.h>

#include "grammar/grammar_test_util.h"
#include "grammar/pattern_automaton.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using test::matches;

grammar::Graph compile(std::string_view pattern) {
  grammar::GraphBuilder builder("regex");
  const auto rule = builder.rule("regex");
  add_pattern_text(
      builder,
      grammar::parse_pattern(pattern, "regex", builder.budget(), grammar::PatternUse::text),
      builder.start(rule), builder.end(rule));
  return builder.finish(rule);
}

TEST(PatternText, MatchesTheWholeText) {
  const auto graph = compile(R"((yes|no), [0-9]{2,3}\.)");
  EXPECT_TRUE(matches(graph, "yes, 12."));
  EXPECT_TRUE(matches(graph, "no, 123."));
  for (const char* text : {"yes, 12", "yes, 12. ", " yes, 12.", "yes, 1.", "maybe, 12."})
    EXPECT_FALSE(matches(graph, text)) << text;
  for (const char* pattern : {"^ab$", "^ab", "ab$", "ab"}) {
    EXPECT_TRUE(matches(compile(pattern), "ab")) << pattern;
    EXPECT_FALSE(matches(compile(pattern), "abc")) << pattern;
    EXPECT_FALSE(matches(compile(pattern), "xab")) << pattern;
  }
}

TEST(PatternText, MayHaveLinesQuotesAndAllCharacters) {
  const auto graph = compile(R"(\w+@\w+\.com\n[^x]*)");
  EXPECT_TRUE(matches(graph, "a@b.com\n"));
  EXPECT_TRUE(matches(graph, "a@b.com\n\"\\\n\t\xC3\xA9"));
  EXPECT_FALSE(matches(graph, "a@b.com\nx"));
  EXPECT_FALSE(matches(graph, "a@b.com\n\xFF"));
  EXPECT_TRUE(matches(compile("."), "\t"));
  EXPECT_FALSE(matches(compile("."), "\n"));
}

TEST(PatternText, HasTheCharactersOfProperties) {
  const auto words = compile(R"(\p{Lu}[\p{L}\p{Mn}]*( \P{L}+)?)");
  EXPECT_TRUE(matches(words, "\xC3\x89tat"));
  EXPECT_TRUE(matches(words, "\xD0\x96\xD1\x83\xD0\xBA 12!"));
  EXPECT_FALSE(matches(words, "\xC3\xA9tat"));
  EXPECT_FALSE(matches(words, "Abc x"));
  EXPECT_TRUE(matches(compile(R"(\p{Script=Greek}+)"), "\xCE\xB1\xCE\xB2"));
  EXPECT_FALSE(matches(compile(R"(\p{sc=Greek}+)"), "ab"));
  EXPECT_TRUE(matches(compile(R"([^\p{Letter}\p{General_Category=Decimal_Number}])"), "-"));
  EXPECT_FALSE(matches(compile(R"([^\p{Letter}\p{gc=Nd}])"), "7"));
  EXPECT_TRUE(matches(compile(R"(\p{Alphabetic}\p{ASCII})"), "a~"));
  for (const char* pattern : {R"(\p{Lettter})", R"(\pL)", R"(\p{L)", R"(\p{a=b})", R"(\p{})"})
    EXPECT_THROW(compile(pattern), Error) << pattern;
}

TEST(PatternText, RefusesWhatIsNoRegularLanguage) {
  for (const char* pattern : {"(a)\\1", "(a", "[a", "(?:(?=a)a)*"})
    EXPECT_THROW(compile(pattern), Error) << pattern;
}

}  // namespace
}  // namespace walsh
