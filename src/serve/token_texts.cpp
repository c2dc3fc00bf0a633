#include "serve/token_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace walsh {

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : bytes_(tokenizer.token_bytes()) {
  for (const std::string& bytes : bytes_)
    longest_ = std::max(longest_, bytes.size());
}

std::string_view TokenTexts::bytes(int32_t token) const {
  if (token < 0 || static_cast<size_t>(token) >= bytes_.size()) return {};
  return bytes_[static_cast<size_t>(token)];
}

std::string TokenTexts::text(int32_t token) const {
  const std::string_view known = bytes(token);
  if (is_valid_utf8(known)) return std::string(known);
  std::string text = "bytes:";
  for (const char c : known)
    text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return text;
}

}  // namespace walsh
