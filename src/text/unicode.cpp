#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/unicode_table.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh {
namespace {

utf8proc_int32_t as_utf8proc(char32_t c) {
  return static_cast<utf8proc_int32_t>(c);
}

bool is_in(std::span<const CharacterRange> ranges, char32_t c) {
  const auto place = std::lower_bound(
      ranges.begin(), ranges.end(), c,
      [](const CharacterRange& range, char32_t code) { return range.last < code; });
  return place != ranges.end() && place->first <= c;
}

[[noreturn]] void fail_normalization(utf8proc_ssize_t code) {
  throw Error(ErrorCode::internal, "unicode normalization", utf8proc_errmsg(code));
}

// Returns the full decomposition of every character, in text order.
std::vector<utf8proc_int32_t> decompose(std::string_view text, bool compatibility) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
  constexpr utf8proc_ssize_t kLongest = 32;  // the longest decomposition has 18 characters
  utf8proc_int32_t parts[kLongest];
  const auto kept = newer_characters(compatibility ? "NoNFKD" : "NoNFD");
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    text.remove_prefix(unit.size);
    if (is_in(kept, unit.code)) {
      out.push_back(as_utf8proc(unit.code));
      continue;
    }
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(as_utf8proc(unit.code), parts, kLongest,
                                static_cast<utf8proc_option_t>(options), &boundary);
    if (count < 0 || count > kLongest) {
      fail_normalization(count);
    }
    out.insert(out.end(), parts, parts + count);
  }
  return out;
}

int combining_class(utf8proc_int32_t c) {
  return static_cast<int>(utf8proc_get_property(c)->combining_class);
}

// Puts marks into canonical order. utf8proc's own reordering is quadratic in the length of a run of
// marks, so runs are sorted here.
void order_marks(std::vector<utf8proc_int32_t>& chars) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  auto begin = chars.begin();
  while ((begin = std::find_if(begin, chars.end(), is_mark)) != chars.end()) {
    const auto end = std::find_if_not(begin, chars.end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

char32_t lower_case(char32_t c) {
  for (const auto& [first, last, offset] : newer_lowercase()) {
    if (c >= first && c <= last) return static_cast<char32_t>(static_cast<int32_t>(c) + offset);
  }
  return static_cast<char32_t>(utf8proc_tolower(as_utf8proc(c)));
}

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// Appends the normal form of a text. It follows the steps of Unicode 15, section 3.11, which
// decompose, order and compose.
void append_normalized(std::string_view text, NormalForm form, std::string& out) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return is_ascii(c); })) {
    out += text;
    return;
  }
  const bool compatibility = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<utf8proc_int32_t> chars = decompose(text, compatibility);
  order_marks(chars);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        chars.data(), static_cast<utf8proc_ssize_t>(chars.size()), options);
    if (count < 0) {
      fail_normalization(count);
    }
    chars.resize(static_cast<size_t>(count));
  }
  for (const utf8proc_int32_t c : chars) {
    append_utf8(static_cast<char32_t>(c), out);
  }
}

}  // namespace

bool is_whitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  static const auto newer = newer_characters("Digits");
  const utf8proc_category_t category = utf8proc_category(as_utf8proc(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO || is_in(newer, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
           (c >= 0x7B && c <= 0x7E);
  }
  static const auto newer = newer_characters("Punctuation"), no = newer_characters("NoPunctuation");
  const utf8proc_category_t category = utf8proc_category(as_utf8proc(c));
  const bool listed = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
  return listed ? !is_in(no, c) : is_in(newer, c);
}

// Returns the normal form. It works in pieces that end before an ASCII character, which never
// combines with what precedes it.
std::string normalize(std::string_view text, NormalForm form, StepBudget& steps) {
  constexpr size_t kPiece = 65536;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t size = std::min(kPiece, text.size());
    while (size < text.size() && !is_ascii(text[size])) {
      ++size;
    }
    steps.spend(size, "normalizer");
    append_normalized(text.substr(0, size), form, out);
    text.remove_prefix(size);
  }
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    text.remove_prefix(unit.size);
    if (unit.code == 0x130) {
      // This is the only character whose unconditional lower case is two characters
      // (SpecialCasing.txt).
      out.append("i\xCC\x87");
    } else {
      append_utf8(lower_case(unit.code), out);
    }
  }
  return out;
}

}  // namespace walsh
