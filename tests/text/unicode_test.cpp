#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text_test_util.h"

namespace walsh {
namespace {

TEST(Normalize, ComposesAndDecomposes) {
  const std::string composed = "\u00E9\u1E69\uAC01";
  const std::string decomposed = "e\u0301s\u0323\u0307\u1100\u1161\u11A8";
  EXPECT_EQ(normalize(decomposed, NormalForm::nfc, test::plenty()), composed);
  EXPECT_EQ(normalize(composed, NormalForm::nfd, test::plenty()), decomposed);
  EXPECT_EQ(normalize(composed, NormalForm::nfc, test::plenty()), composed);
}

TEST(Normalize, OrdersMarksByTheirClass) {
  // Dot above (230) stands before dot below (220) in the source.
  EXPECT_EQ(normalize("q\u0307\u0323", NormalForm::nfd, test::plenty()), "q\u0323\u0307");
  EXPECT_EQ(normalize("s\u0307\u0323", NormalForm::nfc, test::plenty()), "\u1E69");
  // Equal classes keep their order, and the second one blocks nothing.
  EXPECT_EQ(normalize("o\u0301\u0308", NormalForm::nfc, test::plenty()), "\u00F3\u0308");
}

TEST(Normalize, OnlyTheCompatibilityFormsUnfoldLigaturesAndWidths) {
  EXPECT_EQ(normalize("\uFB01\u00B2\uFF76\uFF9E", NormalForm::nfkc, test::plenty()), "fi2\u30AC");
  EXPECT_EQ(normalize("\uFB01\u00B2", NormalForm::nfc, test::plenty()), "\uFB01\u00B2");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::nfkd, test::plenty()), "s\u0323\u0307");
}

TEST(Normalize, KeepsExclusionsAndSingletonsDecomposed) {
  EXPECT_EQ(normalize("\u0958", NormalForm::nfc, test::plenty()), "\u0915\u093C");
  EXPECT_EQ(normalize("\u212B", NormalForm::nfc, test::plenty()), "\u00C5");
}

TEST(Normalize, KeepsNulAndAscii) {
  const std::string text("a\0b\xC3\xA9", 5);
  EXPECT_EQ(normalize(text, NormalForm::nfc, test::plenty()), text);
  EXPECT_EQ(normalize("", NormalForm::nfd, test::plenty()), "");
}

TEST(Normalize, SortsAVeryLongRunOfMarks) {
  std::string marks = "a", sorted = "a";
  for (int i = 0; i < 200'000; ++i) {
    marks += "\u0307\u0323";
  }
  for (const char* mark : {"\u0323", "\u0307"}) {
    for (int i = 0; i < 200'000; ++i) {
      sorted += mark;
    }
  }
  EXPECT_EQ(normalize(marks, NormalForm::nfd, test::plenty()), sorted);
}

TEST(Lowercase, MapsCharacterByCharacter) {
  EXPECT_EQ(lowercase("ABC \u00C9\u0416 \u00DF"), "abc \u00E9\u0436 \u00DF");
  EXPECT_EQ(lowercase("\u0130"), "i\u0307");
  EXPECT_EQ(lowercase("\u039F\u03A3"), "\u03BF\u03C3");  // no final sigma
}

TEST(CharacterClasses, FollowTheProperties) {
  for (const char32_t c : {0x09, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2003, 0x2029, 0x3000}) {
    EXPECT_TRUE(is_whitespace(c)) << std::hex << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {0x08, 0x1F, 0x180E, 0x200B, 0xFEFF}) {
    EXPECT_FALSE(is_whitespace(c)) << std::hex << static_cast<uint32_t>(c);
  }
  EXPECT_TRUE(is_numeric(U'7') && is_numeric(0x0664) && is_numeric(0xBD) && is_numeric(0x2167));
  EXPECT_FALSE(is_numeric(U'x') || is_numeric(0x4E00));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(U'~') && is_punctuation(0x2026));
  EXPECT_FALSE(is_punctuation(0x20AC) || is_punctuation(U'a') || is_punctuation(U' '));
}

TEST(Normalize, PiecesOfALongTextAreJoinedWhereNothingCombines) {
  // Every offset of the marks from a border of pieces, for each form that composes or reorders.
  for (const NormalForm form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc}) {
    for (size_t before = 65'520; before < 65'540; ++before) {
      const std::string text = std::string(before, 'x') + "q\u0307\u0323e\u0301\u1100\u1161 ab";
      const std::string expected =
          std::string(before, 'x') +
          normalize("q\u0307\u0323e\u0301\u1100\u1161 ab", form, test::plenty());
      ASSERT_EQ(normalize(text, form, test::plenty()), expected) << before;
    }
  }
}

}  // namespace
}  // namespace walsh
