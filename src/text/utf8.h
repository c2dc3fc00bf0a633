// Decodes UTF-8 with the replacement rules of the Unicode standard, and reassembles a stream whose
// characters arrive in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace walsh {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// A unit is what one decoding step reads. An ill-formed or truncated unit has code U+FFFD and the
// size of the maximal subpart (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts").
struct Utf8Unit {
  enum class Kind : uint8_t { valid, invalid, truncated };
  char32_t code;
  uint32_t size;  // it counts bytes and is >= 1
  Kind kind;      // if truncated, it is well-formed so far, but `text` ended
};

// Decodes the first unit of a non-empty text.
Utf8Unit decode_utf8(std::string_view text);

void append_utf8(char32_t code, std::string& out);

bool is_valid_utf8(std::string_view text);

// Returns a copy of `text` where each maximal ill-formed subsequence is one U+FFFD.
std::string to_valid_utf8(std::string_view text);

// Returns the number of characters of a valid text.
size_t count_characters(std::string_view text);

// Turns a byte stream into valid UTF-8. It holds back at most 3 bytes of an unfinished character.
class Utf8Assembler {
 public:
  // Appends every character that is complete, or certainly ill-formed, to `out`.
  void feed(std::string_view bytes, std::string& out);
  // Ends the stream. An unfinished character becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string held_;
};

}  // namespace walsh
