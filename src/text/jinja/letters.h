// Gives properties and case mappings of characters as Python's str has them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace walsh::jinja {

// Returns what str.isspace() does. It is true for White_Space and the separators U+001C to U+001F.
bool is_space(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_alphanumeric(char32_t c);
// Returns whether repr() shows the character unescaped.
bool is_printable(char32_t c);
// Returns whether str.splitlines() ends a line at the character. CR LF is one end.
bool is_line_end(char32_t c);

// These use the full case mappings, except for Greek letters with iota subscript or several marks.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
// Returns str.capitalize(), which is the first character in title case and the rest in lower case.
std::string capitalize(std::string_view text);

// Returns the byte offset of the character `index`, or the size of the text if it has fewer
// characters.
size_t offset_of(std::string_view text, size_t index);
// Returns the first character of a text that is not empty, as bytes.
std::string_view first_character(std::string_view text);

// Does what std::string_view::find does, in linear time for every needle.
size_t find_text(std::string_view text, std::string_view sought, size_t from = 0);

// These remove characters of `set` (white space by default) at the left or right end.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view set);
std::string_view strip_right(std::string_view text, std::string_view set);

}  // namespace walsh::jinja
