#include <algorithm>
#include <array>

#include "text/jinja/format.h"
#include "text/jinja/letters.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

template <size_t size>
std::string_view name_of(const std::array<std::string_view, size>& names, int index) {
  return names[static_cast<size_t>(index) % size];
}

std::string padded(int value, size_t width, char fill, char flag) {
  std::string digits = std::to_string(value);
  if (flag == '-') return digits;
  if (flag == '_') fill = ' ';
  if (flag == '0') fill = '0';
  return digits.size() < width ? std::string(width - digits.size(), fill) + digits : digits;
}

// Formats one directive. %Z gives "" without a time zone name. Fails for an unknown directive.
std::string directive(Runtime& runtime, char letter, char flag, const std::tm& time) {
  const auto number = [&](int value, size_t width = 2, char fill = '0') {
    return padded(value, width, fill, flag);
  };
  const auto format = [&](std::string_view pattern) {
    return std::string(format_time(runtime, pattern, time).text()->bytes);
  };
  const int hour = (time.tm_hour + 11) % 12 + 1, week_day = (time.tm_wday + 6) % 7;
  switch (letter) {
    case 'a':
      return std::string(name_of(kDays, time.tm_wday).substr(0, 3));
    case 'A':
      return std::string(name_of(kDays, time.tm_wday));
    case 'b':
    case 'h':
      return std::string(name_of(kMonths, time.tm_mon).substr(0, 3));
    case 'B':
      return std::string(name_of(kMonths, time.tm_mon));
    case 'c':
      return format("%a %b %e %H:%M:%S %Y");
    case 'C':
      return number((time.tm_year + 1900) / 100);
    case 'd':
      return number(time.tm_mday);
    case 'D':
    case 'x':
      return format("%m/%d/%y");
    case 'e':
      return number(time.tm_mday, 2, ' ');
    case 'F':
      return format("%Y-%m-%d");
    case 'H':
      return number(time.tm_hour);
    case 'I':
      return number(hour);
    case 'j':
      return number(time.tm_yday + 1, 3);
    case 'm':
      return number(time.tm_mon + 1);
    case 'M':
      return number(time.tm_min);
    case 'n':
      return "\n";
    case 'p':
      return time.tm_hour < 12 ? "AM" : "PM";
    case 'r':
      return format("%I:%M:%S %p");
    case 'R':
      return format("%H:%M");
    case 'S':
      return number(time.tm_sec);
    case 't':
      return "\t";
    case 'T':
    case 'X':
      return format("%H:%M:%S");
    case 'u':
      return number(week_day + 1, 1);
    case 'U':
      return number((time.tm_yday + 7 - time.tm_wday) / 7);
    case 'w':
      return number(time.tm_wday, 1);
    case 'W':
      return number((time.tm_yday + 7 - week_day) / 7);
    case 'y':
      return number(time.tm_year % 100);
    case 'Y':
      return number(time.tm_year + 1900, 1);
    case 'f':
      return "000000";
    case 'z':
    case 'Z':
      return "";  // Python writes nothing for a time without a zone
    case '%':
      return "%";
    default:
      runtime.fail(std::string("strftime does not know %") + std::string(1, letter));
  }
}

}  // namespace

Value format_time(Runtime& runtime, std::string_view pattern, const std::tm& time) {
  Builder out(runtime);
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      out.append(pattern[i]);
      continue;
    }
    char flag = '\0';
    if (i + 2 < pattern.size() && std::string_view("-_0").find(pattern[i + 1]) != pattern.npos) {
      flag = pattern[++i];
    }
    out.append(directive(runtime, pattern[++i], flag, time));
  }
  return out.value();
}

std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const Utf8Unit unit = decode_utf8(text.substr(at));
    if (!is_line_end(unit.code)) {
      at += unit.size;
      continue;
    }
    const size_t end = text.substr(at, 2) == "\r\n" ? at + 2 : at + unit.size;
    lines.push_back(text.substr(begin, (keep_ends ? end : at) - begin));
    begin = at = end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Value replaced(Runtime& runtime, const Text& text, std::string_view old, std::string_view with,
               int64_t limit) {
  Builder out(runtime);
  std::string_view rest = text.bytes;
  runtime.pass(rest.size());
  if (old.empty()) {  // `with` is inserted before every character and at the end
    for (; limit != 0; --limit) {
      out.append(with);
      if (rest.empty()) break;
      out.append(first_character(rest));
      rest.remove_prefix(first_character(rest).size());
    }
    out.append(rest);
    return out.value(text.markup);
  }
  for (size_t at; limit != 0 && (at = find_text(rest, old)) != rest.npos; --limit) {
    runtime.step();
    out.append(rest.substr(0, at));
    out.append(with);
    rest.remove_prefix(at + old.size());
  }
  out.append(rest);
  return out.value(text.markup);
}

bool all_cased(std::string_view text, bool up) {
  bool any = false;
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    const bool upper = is_upper(unit.code), lower = is_lower(unit.code);
    if ((up ? lower : upper) || is_title(unit.code)) return false;
    any |= upper || lower;
    text.remove_prefix(unit.size);
  }
  return any;
}

}  // namespace walsh::jinja
