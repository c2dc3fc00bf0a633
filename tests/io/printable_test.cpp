#include "io/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace walsh {
namespace {

using namespace std::string_literals;

TEST(Printable, KeepsAsciiAndEscapesTheRest) {
  EXPECT_EQ(printable("model.layers.0"), "model.layers.0");
  EXPECT_EQ(printable("a\nb\0c"s), "a\\x0ab\\x00c");
  EXPECT_EQ(printable("\x1b[31m\xff"), "\\x1b[31m\\xff");
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(printable(std::string(100, 'x'), 4), "xxxx...");
  EXPECT_EQ(printable("xxxx", 4), "xxxx");
  EXPECT_EQ(printable("", 4), "");
}

TEST(TerminalText, KeepsWhatIsSeenAndShowsWhatActs) {
  EXPECT_EQ(terminal_text("a\tb\n\xC3\xA9\xE2\x82\xAC"), "a\tb\n\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(terminal_text("\x1b[31m\r\b\x7f\0"s), "\\x1b[31m\\x0d\\x08\\x7f\\x00");
  EXPECT_EQ(terminal_text("\xC2\x9B"), "\\xc2\\x9b");           // C1 CSI
  EXPECT_EQ(terminal_text("\x9B\xE2\x82"), "\\x9b\\xe2\\x82");  // no UTF-8
  EXPECT_EQ(terminal_text("\xE2\x80\xAE"), "\\xe2\\x80\\xae");  // right to left from here
  EXPECT_EQ(terminal_text("\xE2\x80\x94\xC2\xA0"), "\xE2\x80\x94\xC2\xA0");  // dash, space
}

TEST(OneLine, HasNoBreaks) {
  EXPECT_EQ(one_line("two\r\nlines\tand\x1b[1m more\n\n"), "two lines and\\x1b[1m more");
  EXPECT_EQ(one_line("\n"), "");
  EXPECT_EQ(one_line("\xC3\xA9\n\xE2\x80\xA8x"), "\xC3\xA9 \\xe2\\x80\\xa8x");
}

TEST(PlainUtf8, AcceptsWellFormedText) {
  EXPECT_TRUE(is_plain_utf8(""));
  EXPECT_TRUE(is_plain_utf8("weight"));
  EXPECT_TRUE(is_plain_utf8("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_TRUE(is_plain_utf8("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"));  // around the gaps
}

TEST(PlainUtf8, RefusesControlCharacters) {
  EXPECT_FALSE(is_plain_utf8("a\n"));
  EXPECT_FALSE(is_plain_utf8("\0"s));
  EXPECT_FALSE(is_plain_utf8("\x7f"));
  EXPECT_FALSE(is_plain_utf8("\xC2\x9B"));  // C1 CSI
}

TEST(PlainUtf8, RefusesMalformedSequences) {
  for (const char* text :
       {"\x80", "\xC3", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xE2\x82\x41", "\xFF"}) {
    EXPECT_FALSE(is_plain_utf8(text)) << printable(text);
    EXPECT_FALSE(is_utf8(text)) << printable(text);
  }
}

TEST(Utf8, MayHoldControlCharacters) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\n\x7f\xC2\x9B \xE2\x82\xAC"));
  EXPECT_FALSE(is_utf8("a\n\x9B"));
}

}  // namespace
}  // namespace walsh
