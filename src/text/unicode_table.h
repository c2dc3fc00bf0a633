// Corrects characters on which the tables of the tokenizers library differ from those of PCRE2
// 10.42 and utf8proc 2.8, which know Unicode 14. (The library's own tables are of several versions,
// partly newer, partly older.)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace walsh {

struct CharacterRange {
  char32_t first, last;
};

// Returns the characters of a pattern class (a two-letter category, a property, a script) that are
// newer than Unicode 14. There are further names: "Digits" and "Punctuation" are those of the
// pre-tokenizers; "NoPunctuation" is punctuation only in Unicode, not in the library; "NoNFD" and
// "NoNFKD" are characters that the library does not decompose. Any other name has no characters.
std::span<const CharacterRange> newer_characters(std::string_view name);

// The characters of this range have a lower case that is newer than Unicode 14. It is the character
// plus `offset`.
struct LowercaseRange {
  char32_t first, last;
  int32_t offset;
};
std::span<const LowercaseRange> newer_lowercase();

}  // namespace walsh
