#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace walsh {
namespace {

using Kind = Utf8Unit::Kind;

TEST(DecodeUtf8, ReadsTheFirstAndLastCharacterOfEveryLength) {
  const std::pair<const char*, char32_t> kCases[] = {{"\x01", 1},
                                                     {"\x7F", 0x7F},
                                                     {"\xC2\x80", 0x80},
                                                     {"\xDF\xBF", 0x7FF},
                                                     {"\xE0\xA0\x80", 0x800},
                                                     {"\xED\x9F\xBF", 0xD7FF},
                                                     {"\xEE\x80\x80", 0xE000},
                                                     {"\xEF\xBF\xBF", 0xFFFF},
                                                     {"\xF0\x90\x80\x80", 0x10000},
                                                     {"\xF4\x8F\xBF\xBF", 0x10FFFF}};
  for (const auto& [text, code] : kCases) {
    const Utf8Unit unit = decode_utf8(text);
    EXPECT_EQ(unit.code, code);
    EXPECT_EQ(unit.size, std::string_view(text).size());
    EXPECT_EQ(unit.kind, Kind::valid);
    std::string back;
    append_utf8(code, back);
    EXPECT_EQ(back, text);
  }
}

TEST(DecodeUtf8, TellsTruncatedFromIllFormed) {
  EXPECT_EQ(decode_utf8("\xF0\x9F\x98").kind, Kind::truncated);
  EXPECT_EQ(decode_utf8("\xF0\x9F\x98").size, 3u);
  EXPECT_EQ(decode_utf8("\xF0\x9F\x98z").kind, Kind::invalid);
  EXPECT_EQ(decode_utf8("\xF0\x9F\x98z").size, 3u);
  EXPECT_EQ(decode_utf8("\xED\xA0\x80").size, 1u);  // a surrogate
  EXPECT_EQ(decode_utf8("\xF4\x90\x80\x80").size, 1u);
}

// The expectations are those of Python's bytes.decode("utf-8", "replace").
TEST(ToValidUtf8, ReplacesEachMaximalSubpart) {
  const std::string r(kReplacementUtf8);
  EXPECT_EQ(to_valid_utf8("plain \xC3\xA9"), "plain \xC3\xA9");
  EXPECT_EQ(to_valid_utf8("\xC0\x80"), r + r);
  EXPECT_EQ(to_valid_utf8("\xE2\x82z"), r + "z");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(to_valid_utf8("\xF0\x80\x80\x80"), r + r + r + r);
  EXPECT_EQ(to_valid_utf8("a\xF0\x9F\x98"), "a" + r);
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xC3\xA9"), r + "\xC3\xA9");
  EXPECT_EQ(to_valid_utf8(std::string_view("\0\xFF", 2)), std::string(1, '\0') + r);
}

TEST(Utf8Assembler, GivesTheSameTextForEveryCutting) {
  std::mt19937 random(5);
  const std::string_view kBytes("a\x80\xBF\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xF4\xFF", 16);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) {
      bytes.push_back(kBytes[random() % kBytes.size()]);
    }
    Utf8Assembler assembler;
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = random() % 4;
      assembler.feed(std::string_view(bytes).substr(at, size), out);
      EXPECT_TRUE(is_valid_utf8(out));
      at += size;
    }
    assembler.finish(out);
    EXPECT_EQ(out, to_valid_utf8(bytes));
  }
}

TEST(Utf8, CharactersAreCounted) {
  EXPECT_EQ(count_characters("a\xC3\xA9\xE6\x97\xA5\xF0\x9F\xA6\x80"), 4u);
}

TEST(Utf8Assembler, HoldsBackOnlyWhatMayStillBecomeACharacter) {
  Utf8Assembler assembler;
  std::string out;
  assembler.feed("x\xE2\x82", out);
  EXPECT_EQ(out, "x");
  assembler.feed("\xAC", out);
  EXPECT_EQ(out, "x\xE2\x82\xAC");
  assembler.feed("\xE2", out);
  assembler.feed("!", out);
  EXPECT_EQ(out, "x\xE2\x82\xAC" + std::string(kReplacementUtf8) + "!");
}

}  // namespace
}  // namespace walsh
