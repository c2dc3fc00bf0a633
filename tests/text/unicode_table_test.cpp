// Tests the sets of characters of the tokenizers library (0.23.3), counted above U+007F.
#include "text/unicode_table.h"

#include <gtest/gtest.h>

#include "text/pre_tokenizer.h"
#include "text/regex_translate.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text_test_util.h"

namespace walsh {
namespace {

template <typename Call>
void for_each_character(Call call) {
  for (char32_t c = 0x80; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) call(c);
  }
}

std::string utf8_of(char32_t c) {
  std::string out;
  append_utf8(c, out);
  return out;
}

// Counts the characters in runs of which a pattern matches.
size_t count_of(const char* set) {
  static const std::string all = [] {
    std::string text;
    for_each_character([&](char32_t c) { append_utf8(c, text); });
    return text;
  }();
  std::vector<Span> spans;
  oniguruma_regex(std::string(set) + "+", "f").find_all(all, test::plenty(), spans);
  size_t found = 0;
  for (const Span& span : spans)
    for (size_t i = span.begin; i < span.end; ++i)
      found += (static_cast<unsigned char>(all[i]) & 0xC0) != 0x80 ? 1 : 0;
  return found;
}

TEST(UnicodeTable, ClassesOfPatternsHaveTheCharactersOfTheLibrary) {
  const std::pair<const char*, size_t> counts[] = {{R"(\p{L})", 140976},
                                                   {R"(\p{N})", 1901},
                                                   {R"(\p{P})", 832},
                                                   {R"(\p{S})", 8505},
                                                   {R"(\p{M})", 2501},
                                                   {R"(\p{Lu})", 1832},
                                                   {R"([\p{Lo}])", 136477},
                                                   {R"(\p{Han})", 99030},
                                                   {R"(\p{Alphabetic})", 142707},
                                                   {R"(\w)", 144608},
                                                   {R"([\d])", 750},
                                                   {R"([^\s\p{L}\p{N}])", 969040},
                                                   {R"(\P{L})", 970960},
                                                   {R"(\W)", 967328},
                                                   {R"(\p{Lowercase})", 2543},
                                                   {R"(\p{C})", 957203},
                                                   {R"(\p{Cn})", 819533},
                                                   {R"(\P{C})", 154733},
                                                   {R"(\P{Cn})", 292403},
                                                   {R"([\p{C}a])", 957203},
                                                   {R"([^\p{Cn}])", 292403},
                                                   {R"([\p{Cn}\p{L}])", 960509},
                                                   {R"([\p{^C}])", 154733}};
  for (const auto& [set, count] : counts)
    EXPECT_EQ(count_of(set), count) << set;
}

TEST(UnicodeTable, NegatedSetsInAClassHaveTheCharactersOfTheLibrary) {
  const std::pair<const char*, size_t> counts[] = {
      {R"([\P{L}])", 970960},    {R"([^\P{L}\s])", 140976}, {R"([x\P{Nd}\p{L}])", 1111186},
      {R"([^\W_])", 144602},     {R"([\D])", 1111186},      {R"([^\D])", 750},
      {R"([\W\p{Lu}])", 969166}, {R"([\H])", 1111936},      {R"([^\P{Han}\P{L}])", 98685}};
  for (const auto& [set, count] : counts)
    EXPECT_EQ(count_of(set), count) << set;
}

TEST(UnicodeTable, NormalizersAndPreTokenizersKnowTheCharactersOfTheLibrary) {
  size_t digits = 0, punctuation = 0, lower = 0, forms[4] = {};
  for_each_character([&](char32_t c) {
    digits += is_numeric(c) ? 1 : 0;
    punctuation += is_punctuation(c) ? 1 : 0;
    const std::string text = utf8_of(c);
    lower += lowercase(text) != text ? 1 : 0;
    for (const NormalForm form :
         {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd})
      forms[static_cast<int>(form)] += normalize(text, form, test::plenty()) != text ? 1 : 0;
  });
  EXPECT_EQ(digits, 1914u);
  EXPECT_EQ(punctuation, 694u);
  EXPECT_EQ(lower, 1462u);
  EXPECT_EQ(forms[static_cast<int>(NormalForm::nfc)], 1120u);
  EXPECT_EQ(forms[static_cast<int>(NormalForm::nfd)], 13232u);
  EXPECT_EQ(forms[static_cast<int>(NormalForm::nfkc)], 4794u);
  EXPECT_EQ(forms[static_cast<int>(NormalForm::nfkd)], 16894u);
}

TEST(UnicodeTable, ANewEmojiIsASymbolInThePatternOfDeepSeek) {
  const Json split = {{"type", "Split"},
                      {"pattern",
                       {{"Regex", R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)"
                                  R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  std::vector<std::string> words;
  PreTokenizer(split, "f")
      .split("I \U0001FA77's \u1C89x", 1, test::plenty(),
             [&](std::string_view word, size_t) { words.emplace_back(word); });
  EXPECT_EQ(words, (std::vector<std::string>{"I", " \U0001FA77'", "s", " \u1C89x"}));
}

}  // namespace
}  // namespace walsh
