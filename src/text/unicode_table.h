// Where the tables of the tokenizers library differ from those of PCRE2 10.42 and utf8proc 2.8,
// which know Unicode 14. (The library's tables are of several versions: partly newer, partly
// older.)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace walsh {

struct CharacterRange {
  char32_t first, last;
};

// By the name of a class of patterns (a category of two letters, a property, a script), the
// characters of it that are newer than Unicode 14. Further names: "Digits" and "Punctuation" are
// those of the pre-tokenizers, "NoPunctuation" is what only Unicode has so, "NoNFD" and "NoNFKD"
// are the characters that the library does not decompose. Empty for any other name.
std::span<const CharacterRange> newer_characters(std::string_view name);

// Characters whose lower case is newer than Unicode 14: itself plus `offset`.
struct LowercaseRange {
  char32_t first, last;
  int32_t offset;
};
std::span<const LowercaseRange> newer_lowercase();

}  // namespace walsh
