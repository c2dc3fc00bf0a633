// Shows single tokens in answers. A token may be a part of a character, and its own text is not
// always what it adds to a text.
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

  // Returns the bytes that the token appends to a preceding text, or none for an unknown id.
  std::string_view bytes(int32_t token) const;
  // Returns the same as UTF-8. Ill-formed bytes are written as OpenAI and vLLM do, such as
  // bytes:\xe2\x82
  std::string text(int32_t token) const;
  // Returns the length in bytes of the longest token.
  size_t longest() const { return longest_; }

 private:
  std::vector<std::string> bytes_;
  size_t longest_ = 0;
};

}  // namespace walsh
