// Implements the methods of str.
#include <algorithm>
#include <limits>

#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/letters.h"
#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

constexpr auto kNpos = std::string_view::npos;

std::string_view self_text(Runtime& runtime, const Value& self) {
  runtime.pass(self.text()->bytes.size());
  return self.text()->bytes;
}

// Returns a part of the text, which needs no copy.
Value part(const Value& self, std::string_view bytes) {
  return Text{bytes, self.text()->markup};
}

Value made(Runtime& runtime, const Value& self, std::string_view bytes) {
  if (bytes.size() > runtime.limits().text_bytes) runtime.fail_limit("makes too long a text");
  return runtime.text(bytes, self.text()->markup);
}

std::string_view wanted(Runtime& runtime, const Value* value, std::string_view method) {
  if (value == nullptr) runtime.fail(std::string(method) + "() expects an argument");
  return text_argument(runtime, *value);
}

enum Sides { kLeft = 1, kRight = 2 };

template <int sides>
Value strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "strip", arguments, {"chars"});
  std::string_view text = self_text(runtime, self);
  if (bound[0] == nullptr || bound[0]->none()) {
    if (sides & kLeft) text = strip_left(text);
    if (sides & kRight) text = strip_right(text);
    return part(self, text);
  }
  const std::string_view set = text_argument(runtime, *bound[0]);
  runtime.step(text.size() / 64 * (1 + set.size() / 64));
  if (sides & kLeft) text = strip_left(text, set);
  if (sides & kRight) text = strip_right(text, set);
  return part(self, text);
}

// Narrows `text` to the bounds. Returns false if they exclude all of it.
bool narrow(Runtime& runtime, std::string_view& text, const Value* start, const Value* stop) {
  if (start == nullptr && stop == nullptr) return true;
  const auto size = static_cast<int64_t>(count_characters(text));
  const auto bound = [&](const Value* value, int64_t missing) {
    int64_t at = value == nullptr || value->none() ? missing : integer_argument(runtime, value, 0);
    if (at < 0) at = std::max<int64_t>(0, at + size);
    return at;
  };
  const int64_t from = bound(start, 0), to = std::min(bound(stop, size), size);
  if (from > to) return false;
  const size_t end = offset_of(text, static_cast<size_t>(to));
  const size_t begin = offset_of(text, static_cast<size_t>(from));
  text = text.substr(begin, end - begin);
  return true;
}

template <bool at_end>
Value starts(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "startswith", arguments, {"prefix", "start", "end"});
  if (bound[0] == nullptr) runtime.fail("startswith() and endswith() expect an argument");
  std::string_view text = self.text()->bytes;
  if (!narrow(runtime, text, bound[1], bound[2])) return false;
  const auto matches = [&](const Value& value) {
    const std::string_view sought = text_argument(runtime, value);
    return at_end ? text.ends_with(sought) : text.starts_with(sought);
  };
  const Sequence* sequence = bound[0]->sequence();
  if (sequence == nullptr || sequence->kind != Sequence::Kind::tuple) return matches(*bound[0]);
  return std::any_of(sequence->items.begin(), sequence->items.end(), matches);
}

// Finds the last occurrence of `sought`, searching from the right.
size_t find_last(Runtime& runtime, std::string_view text, std::string_view sought) {
  runtime.step(text.size() / 64 * (1 + sought.size() / 64));
  return text.rfind(sought);
}

template <bool last, bool must>
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "find", arguments, {"sub", "start", "end"});
  const std::string_view sought = wanted(runtime, bound[0], "find");
  const std::string_view whole = self_text(runtime, self);
  std::string_view text = whole;
  size_t place = kNpos;
  if (narrow(runtime, text, bound[1], bound[2])) {
    place = last ? find_last(runtime, text, sought) : find_text(text, sought);
  }
  if (place != kNpos) {
    const size_t bytes = static_cast<size_t>(text.data() - whole.data()) + place;
    return static_cast<Integer>(count_characters(whole.substr(0, bytes)));
  }
  if (must) runtime.fail("substring not found");
  return Integer{-1};
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "count", arguments, {"sub", "start", "end"});
  const std::string_view sought = wanted(runtime, bound[0], "count");
  std::string_view text = self_text(runtime, self);
  if (!narrow(runtime, text, bound[1], bound[2])) return Integer{0};
  if (sought.empty()) return static_cast<Integer>(count_characters(text)) + 1;
  Integer found = 0;
  for (size_t at = 0; (at = find_text(text, sought, at)) != kNpos; at += sought.size())
    ++found;
  return found;
}

// Splits at separators, at most `limit` times from the left; a negative limit means no limit.
std::vector<Value> split_left(Runtime& runtime, const Value& self, std::string_view text,
                              const Value* separator, int64_t limit) {
  std::vector<Value> parts;
  const auto add = [&](std::string_view bytes) {
    runtime.step();
    parts.push_back(part(self, bytes));
  };
  if (separator == nullptr || separator->none()) {
    for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
      if (limit-- == 0) {
        add(text);
        break;
      }
      size_t end = 0;
      while (end < text.size()) {
        const Utf8Unit unit = decode_utf8(text.substr(end));
        if (is_space(unit.code)) break;
        end += unit.size;
      }
      add(text.substr(0, end));
      text.remove_prefix(end);
    }
    return parts;
  }
  const std::string_view sought = text_argument(runtime, *separator);
  if (sought.empty()) runtime.fail("empty separator");
  for (size_t at; limit-- != 0 && (at = find_text(text, sought)) != kNpos;) {
    add(text.substr(0, at));
    text.remove_prefix(at + sought.size());
  }
  add(text);
  return parts;
}

std::vector<Value> split_right(Runtime& runtime, const Value& self, std::string_view text,
                               const Value* separator, int64_t limit) {
  const bool at_spaces = separator == nullptr || separator->none();
  if (limit < 0 && at_spaces) return split_left(runtime, self, text, separator, limit);
  std::vector<Value> parts;
  if (at_spaces) {
    for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
      runtime.step();
      if (limit-- == 0) {
        parts.push_back(part(self, text));
        break;
      }
      std::string_view rest = text;
      while (!rest.empty() && strip_right(rest).size() == rest.size()) {
        do
          rest.remove_suffix(1);
        while (!rest.empty() && (text[rest.size()] & 0xC0) == 0x80);
      }
      parts.push_back(part(self, text.substr(rest.size())));
      text = rest;
    }
  } else {
    const std::string_view sought = text_argument(runtime, *separator);
    if (sought.empty()) runtime.fail("empty separator");
    for (size_t at; limit-- != 0 && (at = find_last(runtime, text, sought)) != kNpos;) {
      parts.push_back(part(self, text.substr(at + sought.size())));
      text = text.substr(0, at);
    }
    parts.push_back(part(self, text));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool right>
Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "split", arguments, {"sep", "maxsplit"});
  const std::string_view text = self_text(runtime, self);
  const int64_t limit = integer_argument(runtime, bound[1], -1);
  return runtime.list((right ? split_right : split_left)(runtime, self, text, bound[0], limit));
}

template <bool right>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "partition", arguments, {"sep"});
  const std::string_view sought = wanted(runtime, bound[0], "partition");
  const std::string_view text = self_text(runtime, self);
  if (sought.empty()) runtime.fail("empty separator");
  const size_t at = right ? find_last(runtime, text, sought) : find_text(text, sought);
  if (at == kNpos) {
    const Value nothing = Text{};
    return right ? runtime.tuple({nothing, nothing, self})
                 : runtime.tuple({self, nothing, nothing});
  }
  return runtime.tuple(
      {part(self, text.substr(0, at)), *bound[0], part(self, text.substr(at + sought.size()))});
}

Value splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "splitlines", arguments, {"keepends"});
  const bool keep = bound[0] != nullptr && truth(*bound[0]);
  std::vector<Value> lines;
  for (const std::string_view line : lines_of(self_text(runtime, self), keep)) {
    lines.push_back(part(self, line));
  }
  return runtime.list(std::move(lines));
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "replace", arguments, {"old", "new", "count"});
  const std::string_view old = wanted(runtime, bound[0], "replace");
  const std::string_view with = wanted(runtime, bound[1], "replace");
  return replaced(runtime, *self.text(), old, with, integer_argument(runtime, bound[2], -1));
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "join", arguments, {"iterable"});
  if (bound[0] == nullptr) runtime.fail("join() expects an argument");
  Builder out(runtime);
  bool first = true;
  for (const Value& item : iterate(runtime, *bound[0])) {
    if (!std::exchange(first, false)) out.append(self.text()->bytes);
    out.append(text_argument(runtime, item));
  }
  return out.value(self.text()->markup);
}

template <std::string (*change)(std::string_view)>
Value change_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "a change of case", arguments, {});
  return made(runtime, self, change(self_text(runtime, self)));
}

// Begins every run of letters with a capital.
std::string title_case(std::string_view text) {
  std::string out;
  bool inside = false;
  while (!text.empty()) {
    const std::string_view c = first_character(text);
    const char32_t code = decode_utf8(c).code;
    out += inside ? lower(c) : capitalize(c);
    inside = is_upper(code) || is_lower(code) || is_title(code);
    text.remove_prefix(c.size());
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view c = first_character(text);
    out += is_upper(decode_utf8(c).code) ? lower(c) : upper(c);
    text.remove_prefix(c.size());
  }
  return out;
}

template <bool (*holds)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "a test of characters", arguments, {});
  std::string_view text = self_text(runtime, self);
  const bool any = !text.empty();
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    if (!holds(unit.code)) return false;
    text.remove_prefix(unit.size);
  }
  return any;
}

bool not_ascii(char32_t c) {
  return c >= 0x80;
}

Value is_ascii(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "isascii", arguments, {});
  const std::string_view text = self_text(runtime, self);
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return not_ascii(static_cast<uint8_t>(c)); });
}

template <bool up>
Value is_cased(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "isupper", arguments, {});
  return all_cased(self_text(runtime, self), up);
}

enum class Align { left, right, center };

template <Align align>
Value pad(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "ljust", arguments, {"width", "fillchar"});
  const std::string_view fill = bound[1] == nullptr ? " " : text_argument(runtime, *bound[1]);
  if (count_characters(fill) != 1) runtime.fail("the fill character is not one character");
  const int64_t width = integer_argument(runtime, bound[0], 0);
  const auto size = static_cast<int64_t>(length(runtime, self));
  const int64_t total = std::max<int64_t>(0, width - size);
  // Python's str.center puts the extra space at the left if the width is odd.
  const int64_t left = align == Align::left    ? 0
                       : align == Align::right ? total
                                               : total / 2 + (total & width & 1);
  Builder out(runtime);
  for (int64_t i = 0; i < left; ++i)
    out.append(fill);
  out.append(self.text()->bytes);
  for (int64_t i = left; i < total; ++i)
    out.append(fill);
  return out.value(self.text()->markup);
}

Value zfill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "zfill", arguments, {"width"});
  std::string_view text = self_text(runtime, self);
  const int64_t missing =
      integer_argument(runtime, bound[0], 0) - static_cast<int64_t>(count_characters(text));
  Builder out(runtime);
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    out.append(text.substr(0, 1));
    text.remove_prefix(1);
  }
  if (missing > 0) out.append('0', static_cast<size_t>(missing));
  out.append(text);
  return out.value(self.text()->markup);
}

template <bool suffix>
Value remove_end(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "removeprefix", arguments, {"prefix"});
  const std::string_view end = wanted(runtime, bound[0], "removeprefix");
  std::string_view text = self.text()->bytes;
  if (suffix && text.ends_with(end)) text.remove_suffix(end.size());
  if (!suffix && text.starts_with(end)) text.remove_prefix(end.size());
  return part(self, text);
}

Value format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return format_braces(runtime, *self.text(), arguments);
}

constexpr NamedFunction kMethods[] = {
    {"strip", strip<kLeft | kRight>},
    {"lstrip", strip<kLeft>},
    {"rstrip", strip<kRight>},
    {"startswith", starts<false>},
    {"endswith", starts<true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"lower", change_case<lower>},
    {"casefold", change_case<lower>},
    {"upper", change_case<upper>},
    {"capitalize", change_case<capitalize>},
    {"title", change_case<title_case>},
    {"swapcase", change_case<swap_case>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"removeprefix", remove_end<false>},
    {"removesuffix", remove_end<true>},
    {"ljust", pad<Align::left>},
    {"rjust", pad<Align::right>},
    {"center", pad<Align::center>},
    {"zfill", zfill},
    {"isalpha", all_are<is_letter>},
    {"isdigit", all_are<is_decimal>},
    {"isdecimal", all_are<is_decimal>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isspace", all_are<is_space>},
    {"isprintable", all_are<is_printable>},
    {"isascii", is_ascii},
    {"isupper", is_cased<true>},
    {"islower", is_cased<false>},
};

}  // namespace

Function find_text_method(std::string_view name) {
  return look_up(kMethods, name);
}

}  // namespace walsh::jinja
