#include "serve/token_texts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace walsh {
namespace {

Tokenizer tokenizer(const std::string& name) {
  std::ifstream in(WALSH_SOURCE_DIR "/tests/data/tokenizers/" + name + ".json");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return Tokenizer::from_json(text, "", name);
}

std::vector<std::string> texts(const Tokenizer& tokenizer, const std::string& text) {
  const TokenTexts tokens(tokenizer);
  std::vector<std::string> result;
  for (const int32_t id : tokenizer.encode(text, false))
    result.push_back(tokens.text(id));
  return result;
}

// Decoded alone, such a token would lose its leading space.
TEST(TokenTexts, KeepTheirSpaces) {
  std::string joined;
  for (const std::string& text : texts(tokenizer("mistral"), "the river is"))
    joined += text;
  EXPECT_EQ(joined, " the river is");
}

TEST(TokenTexts, PartsOfCharactersAreWrittenAsBytes) {
  const auto parts = texts(tokenizer("gpt2"), "\xF0\x93\x80\x80");
  ASSERT_GT(parts.size(), 1u);
  std::string all;
  for (const std::string& part : parts) {
    EXPECT_TRUE(part.starts_with("bytes:\\x")) << part;
    all += part.substr(6);
  }
  EXPECT_EQ(all, "\\xf0\\x93\\x80\\x80");
}

TEST(TokenTexts, UnknownIdsHaveNone) {
  const TokenTexts tokens(tokenizer("gpt2"));
  EXPECT_EQ(tokens.text(-1), "");
  EXPECT_EQ(tokens.text(1'000'000'000), "");
  EXPECT_GT(tokens.longest(), 8u);
}

}  // namespace
}  // namespace walsh
