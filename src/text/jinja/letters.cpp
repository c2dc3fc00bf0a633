#include "text/jinja/letters.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "text/unicode.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

int category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Gives the upper and the title case of a character whose upper case is several characters
// (SpecialCasing.txt).
struct Expansion {
  char32_t from;
  std::string_view upper, title;
};
constexpr Expansion kExpansions[] = {
    {0xDF, "SS", "Ss"},
    {0x149, "\xCA\xBCN", "\xCA\xBCN"},
    {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0x390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x3B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0x1E96, "H\xCC\xB1", "H\xCC\xB1"},
    {0x1E97, "T\xCC\x88", "T\xCC\x88"},
    {0x1E98, "W\xCC\x8A", "W\xCC\x8A"},
    {0x1E99, "Y\xCC\x8A", "Y\xCC\x8A"},
    {0x1E9A, "A\xCA\xBE", "A\xCA\xBE"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

void append_cased(char32_t c, bool title, std::string& out) {
  const auto* place =
      std::lower_bound(std::begin(kExpansions), std::end(kExpansions), c,
                       [](const Expansion& e, char32_t code) { return e.from < code; });
  if (place != std::end(kExpansions) && place->from == c) {
    out += title ? place->title : place->upper;
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  append_utf8(static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)), out);
}

bool cased(char32_t c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}

// Returns whether the rule for the final sigma skips the character.
bool case_ignorable(char32_t c) {
  const int kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
         kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

char32_t last_code(std::string_view text, size_t& size) {
  size = 1;
  while (size < text.size() && size < 4 && (text[text.size() - size] & 0xC0) == 0x80)
    ++size;
  return decode_utf8(text.substr(text.size() - size)).code;
}

// Returns whether the sigma between the two texts ends a word. The search is short, because only
// marks are skipped and their number is limited to what real text has.
bool final_sigma(std::string_view before, std::string_view after) {
  constexpr int kMarks = 32;
  size_t size = 0;
  for (int i = 0;; ++i) {
    if (before.empty() || i == kMarks) return false;
    const char32_t c = last_code(before, size);
    before.remove_suffix(size);
    if (case_ignorable(c)) continue;
    if (!cased(c)) return false;
    break;
  }
  for (int i = 0; !after.empty() && i < kMarks; ++i) {
    const Utf8Unit unit = decode_utf8(after);
    after.remove_prefix(unit.size);
    if (!case_ignorable(unit.code)) return !cased(unit.code);
  }
  return true;
}

}  // namespace

bool is_space(char32_t c) {
  return is_whitespace(c) || (c >= 0x1C && c <= 0x1F);
}
bool is_upper(char32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_lower(char32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_letter(char32_t c) {
  const int kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_numeric(c);
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    text.remove_prefix(unit.size);
    append_cased(unit.code, false, out);
  }
  return out;
}

std::string lower(std::string_view text) {
  constexpr std::string_view kSigma = "\xCE\xA3", kFinal = "\xCF\x82";
  std::string out;
  out.reserve(text.size());
  size_t from = 0;
  for (size_t at; (at = text.find(kSigma, from)) != text.npos; from = at + kSigma.size()) {
    const std::string_view after = text.substr(at + kSigma.size());
    out += lowercase(text.substr(from, at - from));
    out += final_sigma(text.substr(0, at), after) ? kFinal : std::string_view("\xCF\x83");
  }
  return out += lowercase(text.substr(from));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const Utf8Unit unit = decode_utf8(text);
  std::string out;
  append_cased(unit.code, true, out);
  // The rest keeps its context, which decides the form of a sigma.
  const std::string whole = lower(text);
  return out + whole.substr(lower(text.substr(0, unit.size)).size());
}

size_t offset_of(std::string_view text, size_t index) {
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) != 0x80 && index-- == 0) return i;
  }
  return text.size();
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, decode_utf8(text).size);
}

size_t find_text(std::string_view text, std::string_view sought, size_t from) {
  if (from > text.size()) return text.npos;
  if (sought.empty()) return from;
  // The text may also have no room for it.
  if (sought.size() > text.size() - from) return text.npos;
  const void* const place =
      memmem(text.data() + from, text.size() - from, sought.data(), sought.size());
  return place == nullptr ? text.npos
                          : static_cast<size_t>(static_cast<const char*>(place) - text.data());
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    if (!is_space(unit.code)) break;
    text.remove_prefix(unit.size);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  for (size_t size; !text.empty(); text.remove_suffix(size)) {
    if (!is_space(last_code(text, size))) break;
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view set) {
  while (!text.empty()) {
    const std::string_view c = first_character(text);
    if (set.find(c) == set.npos) break;
    text.remove_prefix(c.size());
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view set) {
  for (size_t size; !text.empty(); text.remove_suffix(size)) {
    last_code(text, size);
    if (set.find(text.substr(text.size() - size)) == set.npos) break;
  }
  return text;
}

}  // namespace walsh::jinja
