// Maps bytes to printable characters and back as GPT-2 does, on which byte-level BPE works.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace walsh {

// Returns the character of a byte. The 94 + 12 + 82 printable Latin-1 bytes stand for themselves,
// the other 68 for U+0100 and up.
char32_t byte_to_character(uint8_t byte);

// Appends the characters for the bytes of `text`.
void append_byte_level(std::string_view text, std::string& out);

// Returns the bytes that a token stands for, or nothing if one of its characters stands for no
// byte.
std::optional<std::string> byte_level_to_bytes(std::string_view token);

}  // namespace walsh
