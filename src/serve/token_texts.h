// What the tokens of a vocabulary are in answers: a token may be part of a character, and its text
// alone is not always what it adds to a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace walsh {

class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  // What the token adds to a text behind others; empty for an unknown id.
  std::string_view bytes(int32_t token) const;
  // The same as UTF-8. Bytes that are none are written as OpenAI and vLLM do: bytes:\xe2\x82
  std::string text(int32_t token) const;
  // Bytes of the longest one.
  size_t longest() const { return longest_; }

 private:
  std::vector<std::string> bytes_;
  size_t longest_ = 0;
};

}  // namespace walsh
