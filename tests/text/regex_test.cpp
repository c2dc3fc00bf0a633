#include "base/regex.h"

#include <gtest/gtest.h>

#include "text/regex_translate.h"
#include "text_test_util.h"

namespace walsh {
namespace {

using test::error_of;

std::vector<std::string> found(std::string_view pattern, std::string_view text) {
  std::vector<Span> spans;
  oniguruma_regex(pattern, "test").find_all(text, test::plenty(), spans);
  std::vector<std::string> out;
  for (const Span& span : spans) {
    out.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

using Strings = std::vector<std::string>;

TEST(Regex, SplitsWithTheLlama3Pattern) {
  const char* pattern =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  EXPECT_EQ(found(pattern, "We'RE 12345  ok!\n\n x"),
            (Strings{"We", "'RE", " ", "123", "45", " ", " ok", "!\n\n", " x"}));
}

TEST(Regex, FindsEmptyMatchesUnlessTheyTouchTheOneBefore) {
  EXPECT_EQ(found("x*", "axxb"), (Strings{"", "xx", ""}));
  EXPECT_EQ(found("", "\u00E9a"), (Strings{"", "", ""}));
  EXPECT_EQ(found("y", ""), Strings{});
}

TEST(Regex, UsesOnigurumasSets) {
  EXPECT_EQ(found("\\s", " \u180E\u00A0\u0085"), (Strings{" ", "\u00A0", "\u0085"}));
  EXPECT_EQ(found("\\w+", "a\u0301_1 \u00BD"), (Strings{"a\u0301_1", "\u00BD"}));
  EXPECT_EQ(found("[\\w]+", "a\u0301_1 \u00BD"), (Strings{"a\u0301_1"}));
  EXPECT_EQ(found("\\h+", "face gap"), (Strings{"face", "a"}));
  EXPECT_EQ(found("[\\H]+", "face gap"), (Strings{" g", "p"}));
  EXPECT_EQ(found("\\p{Greek}+", "\u03B1\u0342x"), (Strings{"\u03B1"}));  // script, not extensions
  EXPECT_EQ(found("\\bab", "ab \u0301ab _ab"), (Strings{"ab"}));
  EXPECT_EQ(found("(?i:'S)", "'s 'S '\u017F"), (Strings{"'s", "'S", "'\u017F"}));
}

TEST(Regex, UsesOnigurumasAnchorsAndDot) {
  EXPECT_EQ(found("^b$", "a\nb\nc"), (Strings{"b"}));
  EXPECT_EQ(found("a.b", "a\nb a\rb"), (Strings{"a\rb"}));
  EXPECT_EQ(found("(?m:a.b)", "a\nb"), (Strings{"a\nb"}));
  EXPECT_EQ(found("a{,2}b", "aaab"), (Strings{"aab"}));
  EXPECT_EQ(found("{x}", "{x}"), (Strings{"{x}"}));
}

TEST(Regex, RefusesWhatPcre2WouldReadDifferently) {
  for (const char* pattern :
       {"[a[bc]]",   "[[:alpha:]]", "[a&&b]",    "[]a]",          "(?<name>a)", "(?x)a b",
        "a(?i)b",    "a{1,3}+",     "a{2}?",     "\\Ka",          "\\R",        "\\1",
        "(a)\\g<1>", "\\pL",        "\\p{}",     "\\p{Foo}",      "\\p{L",      "\\xE9",
        "\\u12",     "\\x{}",       "[a",        "a\\",           "(",          "a)",
        "*",         "(?#c)",       "(?",        "\\Q.\\E",       "(*UTF)a",    "\\p{Foo:Bar}",
        "\\u{41}",   "a{256}",      "a{1,1001}", "a{99999999999}"}) {
    const std::string message = error_of([&] { oniguruma_regex(pattern, "the file"); });
    EXPECT_THAT(message, testing::StartsWith("the file: pattern ")) << pattern;
  }
}

TEST(Regex, RefusesAPatternThatIsTooLong) {
  EXPECT_NE(error_of([] { oniguruma_regex(std::string(20'000, 'a'), "f"); }), "");
  EXPECT_NE(error_of([] { oniguruma_regex(std::string(5'000, '('), "f"); }), "");
}

TEST(Regex, EndsExponentialBacktrackingWithAnError) {
  const Regex regex = oniguruma_regex("(?:a|aa|aaa)*[bc]", "the file");
  std::vector<Span> spans;
  const std::string text = std::string(60, 'a') + "d";
  StepBudget steps = StepBudget::for_text(text.size());
  const std::string message =
      error_of([&] { regex.find_all(text, steps, spans); }, ErrorCode::limit);
  EXPECT_THAT(message, testing::StartsWith("the file: the pattern: takes more than "));
}

TEST(Regex, MatchesDeepRepetitionsBeyondTheMachineStack) {
  std::vector<Span> spans;
  const std::string text(200'000, 'a');
  oniguruma_regex("(?:a|b)+", "f").find_all(text, test::plenty(), spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].end, text.size());
}

TEST(OnigurumaToPcre2, RewritesOnlyWhatDiffers) {
  EXPECT_EQ(oniguruma_to_pcre2("a\\.\\[b]\\p{Lt}(?=x)(?<!y)", "f"), "a\\.\\[b]\\p{Lt}(?=x)(?<!y)");
  EXPECT_EQ(oniguruma_to_pcre2("\\S[\\s\\p{Nl}]\\v\\u00e9\\x41", "f"),
            "\\P{White_Space}[\\p{White_Space}\\p{Nl}]\\x{0B}\\x{00e9}\\x{41}");
  EXPECT_EQ(oniguruma_to_pcre2("\\p{^Thai}\\P{^Zs}", "f"), "\\P{sc:Thai}\\p{Zs}");
}

}  // namespace
}  // namespace walsh
