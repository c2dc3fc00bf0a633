// Takes arbitrary bytes as a tokenizer.json. Loading must either work or throw walsh::Error, and a
// tokenizer that loads must encode and decode without breaking its promises.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace {

constexpr size_t kMaxInput = 64 * 1024;

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void exercise(const walsh::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, true);
  for (const int32_t id : ids) {
    require(id >= 0 && id < tokenizer.vocab_size() && tokenizer.token(id).has_value());
  }
  for (const bool skip_special : {false, true}) {
    const std::string whole = tokenizer.decode(ids, skip_special);
    require(walsh::is_valid_utf8(whole));
    walsh::StreamDecoder stream(tokenizer, skip_special);
    std::string pieces;
    for (const int32_t id : ids) {
      const std::string piece = stream.push(id);
      require(walsh::is_valid_utf8(piece));
      pieces += piece;
    }
    require(pieces + stream.finish() == whole);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInput) {
    return 0;
  }
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const walsh::Tokenizer tokenizer = walsh::Tokenizer::from_json(json, "", "fuzz");
    for (const std::string_view text : {"", " Hello,  w\xC3\xB6rld 123's\r\n",
                                        "\xFF\xE2\x82<s>\xF0\x9F\x98\x80 a-b_c", "aab ab abc"}) {
      try {
        exercise(tokenizer, text);
      } catch (const walsh::Error&) {
      }
    }
  } catch (const walsh::Error&) {
  }
  return 0;
}
