// Tests equality with the Hugging Face tokenizers library on the strings of
// tools/make_tokenizer_cases.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "text/utf8.h"
#include "text_test_util.h"

namespace walsh {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream stream(test::read_text(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string from_base64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') {
      break;
    }
    bits = (bits << 6) | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  return out;
}

std::string hash_of(std::string_view bytes) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : bytes) {
    value = (value ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  }
  std::ostringstream out;
  out.width(16);
  out.fill('0');
  out << std::hex << value;
  return out.str();
}

std::string bytes_of(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      out.push_back(static_cast<char>((static_cast<uint32_t>(id) >> shift) & 0xFF));
    }
  }
  return out;
}

std::string list_of(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) {
    out.append(out.empty() ? "" : ",").append(std::to_string(id));
  }
  return out;
}

const std::vector<std::string>& strings() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> decoded = lines_of(test::data_path("strings.txt"));
    std::transform(decoded.begin(), decoded.end(), decoded.begin(), from_base64);
    return decoded;
  }();
  return all;
}

std::string tokenizer_path(const std::string& name) {
  if (name == "walsh-tiny-13m") {
    return std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m/tokenizer.json";
  }
  return test::data_path(name + ".json");
}

struct Expected {
  std::string ids_hash, text_hash, ids;
};

Expected parse_expected(const std::string& line) {
  std::istringstream stream(line);
  Expected expected;
  stream >> expected.ids_hash >> expected.text_hash >> expected.ids;
  return expected;
}

std::string ids_hash(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> words = tokenizer.encode(text, true);
  words.push_back(-1);
  const std::vector<int32_t> plain = tokenizer.encode(text, false);
  words.insert(words.end(), plain.begin(), plain.end());
  return hash_of(bytes_of(words));
}

std::string text_hash(const Tokenizer& tokenizer, std::vector<int32_t> ids) {
  std::string all = tokenizer.decode(ids, true) + "\xff" + tokenizer.decode(ids, false) + "\xff";
  std::reverse(ids.begin(), ids.end());
  return hash_of(all += tokenizer.decode(ids, false));
}

class TokenizerCases : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerCases, ThereAreEnoughStringsAndSomeAreIllFormed) {
  EXPECT_GE(strings().size(), 5000u);
  EXPECT_GE(std::count_if(strings().begin(), strings().end(),
                          [](const std::string& s) { return !is_valid_utf8(s); }),
            200);
}

TEST_P(TokenizerCases, EncodesAndDecodesAsHuggingFace) {
  const Tokenizer tokenizer = test::load_tokenizer(tokenizer_path(GetParam()));
  const auto lines = lines_of(test::data_path(GetParam() + ".expected"));
  ASSERT_EQ(lines.size(), strings().size());
  int wrong = 0;
  for (size_t i = 0; i < lines.size() && wrong < 10; ++i) {
    const Expected expected = parse_expected(lines[i]);
    const std::vector<int32_t> ids = tokenizer.encode(strings()[i], true);
    const bool ids_match = ids_hash(tokenizer, strings()[i]) == expected.ids_hash;
    const bool text_matches = text_hash(tokenizer, ids) == expected.text_hash;
    EXPECT_TRUE(ids_match) << "string " << i << ": " << testing::PrintToString(strings()[i])
                           << " gives " << list_of(ids) << " expected " << expected.ids;
    EXPECT_TRUE(text_matches || !ids_match)
        << "decoding string " << i << ": " << testing::PrintToString(strings()[i]);
    if (!expected.ids.empty()) {
      EXPECT_EQ(list_of(ids), expected.ids) << "string " << i;
    }
    wrong += ids_match && text_matches ? 0 : 1;
  }
}

TEST_P(TokenizerCases, StreamedTextIsTheDecodedText) {
  const Tokenizer tokenizer = test::load_tokenizer(tokenizer_path(GetParam()));
  for (size_t i = 0; i < strings().size(); i += 3) {
    std::vector<int32_t> ids = tokenizer.encode(strings()[i], true);
    if (i % 2 == 1) {
      std::reverse(ids.begin(), ids.end());
    }
    for (const bool skip_special : {false, true}) {
      StreamDecoder stream(tokenizer, skip_special);
      std::string text;
      for (const int32_t id : ids) {
        const std::string piece = stream.push(id);
        ASSERT_TRUE(is_valid_utf8(piece)) << "string " << i;
        text += piece;
      }
      text += stream.finish();
      ASSERT_EQ(text, tokenizer.decode(ids, skip_special)) << "string " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerCases,
                         testing::Values("llama3", "qwen2", "gpt2", "llama2", "mistral", "assorted",
                                         "unusual", "words", "walsh-tiny-13m"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace walsh
