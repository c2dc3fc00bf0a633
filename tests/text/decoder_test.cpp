#include "text/decoder.h"

#include <gtest/gtest.h>

#include "text/byte_level.h"
#include "text/utf8.h"
#include "text_test_util.h"

namespace walsh {
namespace {

std::string decode(std::string_view json, const std::vector<std::string>& tokens) {
  DecodeStream stream = Decoder(parse_json(json, "test"), "decoder").start();
  std::string text;
  for (const std::string& token : tokens) {
    text += stream.push(token);
  }
  return text += stream.finish();
}

constexpr const char* kSentencePiece = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(Decoder, NullJoinsWithSpaces) {
  EXPECT_EQ(decode("null", {"a", "", "b"}), "a  b");
  EXPECT_EQ(decode("null", {}), "");
}

TEST(Decoder, ByteLevelJoinsBytesAcrossTokens) {
  const char* json = R"({"type": "ByteLevel"})";
  EXPECT_EQ(decode(json, {"\u0120"
                          "a",
                          "\u00C3", "\u00A9"}),
            " a\u00E9");
  EXPECT_EQ(decode(json, {"\u00C3", "b"}),
            "\uFFFD"
            "b");
  // A token with a character that stands for no byte is taken as it is.
  EXPECT_EQ(decode(json, {"<|x y|>\u6C34"}), "<|x y|>\u6C34");
}

TEST(Decoder, SentencePieceDropsOneLeadingSpace) {
  EXPECT_EQ(decode(kSentencePiece, {"\u2581hello", "\u2581", "world"}), "hello world");
  EXPECT_EQ(decode(kSentencePiece, {"\u2581\u2581x"}), " x");
  EXPECT_EQ(decode(kSentencePiece, {"<0x20>", "\u2581x"}), " x");
}

TEST(Decoder, ByteFallbackReplacesEveryByteOfABrokenRun) {
  EXPECT_EQ(decode(kSentencePiece, {"<0xC3>", "<0xA9>", "x"}), "\u00E9x");
  EXPECT_EQ(decode(kSentencePiece, {"<0xC3>", "<0xA9>", "<0xC3>", "x"}), "\uFFFD\uFFFD\uFFFDx");
  EXPECT_EQ(decode(kSentencePiece, {"<0xe2>", "<0x82>"}), "\uFFFD\uFFFD");
}

TEST(Decoder, ByteTokensHaveExactlyTwoHexadecimalDigits) {
  for (const char* token : {"<0xG0>", "<0x+5>", "<0x5>", "<0x041>", "<0X41>", "<0x 5>", "<0x41"}) {
    EXPECT_EQ(decode(kSentencePiece, {token}), token);
  }
}

TEST(Decoder, MetaspaceDropsTheMarksOfTheFirstToken) {
  const char* json = R"({"type": "Metaspace", "replacement": "\u2581"})";
  EXPECT_EQ(decode(json, {"\u2581"
                          "a\u2581"
                          "b",
                          "\u2581"
                          "c"}),
            "ab c");
  const char* never = R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})";
  EXPECT_EQ(decode(never, {"_a", "_b"}), " a b");
}

TEST(Decoder, StripWorksOnBothEndsOfEveryToken) {
  const char* json = R"({"type": "Strip", "content": "-", "start": 1, "stop": 2})";
  EXPECT_EQ(decode(json, {"--a----", "-", "b-c-", "---"}), "-a--b-c");
  const char* fused = R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Strip", "content": "-", "start": 0, "stop": 2}]})";
  EXPECT_EQ(decode(fused, {"a-", "-b-", "-", "-"}), "a--b-");
}

TEST(Decoder, ReplaceAfterFuseSeesTheWholeText) {
  const char* json = R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "x"}]})";
  EXPECT_EQ(decode(json, {"ba", "ab"}), "bxb");
}

TEST(DecodeStream, GivesTextAsSoonAsItIsSettled) {
  DecodeStream stream = Decoder(parse_json(kSentencePiece, "test"), "decoder").start();
  EXPECT_EQ(stream.push("\u2581"
                        "a"),
            "a");
  EXPECT_EQ(stream.push("\u2581"
                        "b"),
            " b");
  EXPECT_EQ(stream.push("<0xC3>"), "");
  EXPECT_EQ(stream.push("<0xA9>"), "");
  EXPECT_EQ(stream.push("c"),
            "\u00E9"
            "c");
  EXPECT_EQ(stream.push("<0xC3>"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Decoder, RefusesOthersByName) {
  EXPECT_EQ(test::error_of([] { decode(R"({"type": "WordPiece"})", {}); }),
            "decoder: the decoder \"WordPiece\" is not supported");
}

TEST(ByteLevel, MapsAllBytesToDistinctCharactersAndBack) {
  std::string bytes, mapped;
  for (int b = 0; b < 256; ++b) {
    bytes.push_back(static_cast<char>(b));
  }
  append_byte_level(bytes, mapped);
  EXPECT_EQ(byte_level_to_bytes(mapped), bytes);
  EXPECT_EQ(byte_to_character(0x20), 0x120u);
  EXPECT_EQ(byte_to_character(0x0A), 0x10Au);
  EXPECT_EQ(byte_to_character(0xAD), 0x143u);
  EXPECT_EQ(byte_to_character('!'), char32_t{'!'});
  EXPECT_FALSE(byte_level_to_bytes(" ").has_value());
  EXPECT_FALSE(byte_level_to_bytes("\u0144").has_value());
}

}  // namespace
}  // namespace walsh
