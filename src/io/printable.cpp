#include "io/printable.h"

#include <algorithm>
#include <cstdint>

namespace walsh {
namespace {

// Returns the length of the well-formed UTF-8 sequence at the start of `s` (Unicode 15, table 3-7),
// or 0 if there is none.
size_t sequence_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || s.size() < length) return 0;
  // The second byte excludes overlong forms, surrogates and values above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

char32_t code_point(std::string_view sequence) {
  const auto lead = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return lead;
  char32_t code = lead & (0x7Fu >> sequence.size());
  for (const char c : sequence.substr(1))
    code = code << 6 | (static_cast<uint8_t>(c) & 0x3Fu);
  return code;
}

// Returns whether a character controls the terminal or the text direction instead of being shown.
bool acts_on_terminal(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) ||  // C0, DEL, C1
         (c >= 0x2028 && c <= 0x202E) ||         // separators, embeddings, overrides
         (c >= 0x2066 && c <= 0x2069);           // these isolate a direction
}

void append_escaped(std::string& out, char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto u = static_cast<uint8_t>(c);
  out += "\\x";
  out += kHex[u >> 4];
  out += kHex[u & 15];
}

bool breaks_line(char c) {
  return c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string result;
  for (const char c : text.substr(0, max_bytes)) {
    if (c >= 0x20 && c < 0x7F) {
      result += c;
    } else {
      append_escaped(result, c);
    }
  }
  if (text.size() > max_bytes) result += "...";
  return result;
}

std::string terminal_text(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const std::string_view sequence = text.substr(0, std::max<size_t>(length, 1));
    text.remove_prefix(sequence.size());
    const bool layout = sequence == "\n" || sequence == "\t";
    if (layout || (length > 0 && !acts_on_terminal(code_point(sequence)))) {
      result += sequence;
      continue;
    }
    for (const char c : sequence)
      append_escaped(result, c);
  }
  return result;
}

std::string one_line(std::string_view text) {
  std::string line;
  bool gap = false;
  for (const char c : text) {
    if (breaks_line(c)) {
      gap = true;
      continue;
    }
    if (gap && !line.empty()) line += ' ';
    gap = false;
    line += c;
  }
  return terminal_text(line);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_plain_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    const auto lead = static_cast<uint8_t>(text[0]);
    if (lead < 0x20 || lead == 0x7F) return false;
    // These are C1 controls.
    if (lead == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace walsh
