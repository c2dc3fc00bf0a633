#include "text/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/functions.h"
#include "text/jinja/letters.h"
#include "text/jinja/operations.h"
#include "text/jinja/printing.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

constexpr int64_t kMaxPrecision = 200;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Says how one value is formatted, in `%` patterns and after the colon of `{}`.
struct Style {
  char align = '\0';  // it is one of < > ^ or =, which puts fill between sign and digits
  std::string_view fill = " ";
  char sign = '-';
  bool alternate = false, grouped = false;
  int64_t width = 0, precision = -1;
  char type = '\0';
};

// Reads digits at `place` and moves it past them.
int64_t take_number(const Runtime& runtime, std::string_view text, size_t& place) {
  int64_t number = 0;
  while (place < text.size() && is_digit(text[place])) {
    number = number * 10 + (text[place++] - '0');
    if (number > static_cast<int64_t>(runtime.limits().text_bytes)) {
      runtime.fail_limit("a format is too wide");
    }
  }
  return number;
}

std::string digits_of(Integer value, const Style& style) {
  const char type = style.type | 0x20;
  const int base = type == 'x' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  auto rest = magnitude(value);
  if (base == 10) return format_digits(rest);
  std::string out;
  do {
    const char digit = "0123456789abcdef"[static_cast<size_t>(rest % static_cast<Unsigned>(base))];
    out += style.type == 'X' && digit > '9' ? static_cast<char>(digit - 32) : digit;
    rest /= static_cast<Unsigned>(base);
  } while (rest != 0);
  if (style.alternate) out += std::string(1, style.type) + "0";
  std::reverse(out.begin(), out.end());
  return out;
}

std::string digits_of(const Runtime& runtime, double value, const Style& style) {
  value = std::fabs(value);
  if (std::isnan(value) || std::isinf(value)) return std::isnan(value) ? "nan" : "inf";
  if (style.precision > kMaxPrecision) runtime.fail_limit("a format has too many digits");
  const char type = style.type == '%' ? 'f' : static_cast<char>(style.type | 0x20);
  const auto form = type == 'f'   ? std::chars_format::fixed
                    : type == 'e' ? std::chars_format::scientific
                                  : std::chars_format::general;
  const int precision = style.precision < 0 ? 6 : static_cast<int>(style.precision);
  char buffer[600];
  const double shown = style.type == '%' ? value * 100 : value;
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), shown, form, precision).ptr;
  std::string out(buffer, end);
  if (style.type == 'E' || style.type == 'G') out = upper(out);
  return style.type == '%' ? out + "%" : out;
}

std::string group_thousands(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out = digits;
  for (size_t at = whole; at > 3;)
    out.insert(at -= 3, 1, ',');
  return out;
}

void append_padded(std::string_view sign, std::string_view body, const Style& style, char align,
                   Builder& out) {
  const auto size = static_cast<int64_t>(count_characters(sign) + count_characters(body));
  const int64_t missing = std::max<int64_t>(0, style.width - size);
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      out.append(style.fill);
  };
  if (align == '=') out.append(sign);
  fill(left);
  if (align != '=') out.append(sign);
  out.append(body);
  fill(missing - left);
}

void append_text(std::string_view text, const Style& style, Builder& out) {
  if (style.precision >= 0) {
    text = text.substr(0, offset_of(text, static_cast<size_t>(style.precision)));
  }
  append_padded("", text, style, style.align == '\0' ? '<' : style.align, out);
}

void append_number(Runtime& runtime, const Value& value, Style style, Builder& out) {
  const bool wants_real =
      style.type != '\0' && std::string_view("fFeEgG%").find(style.type) != std::string_view::npos;
  std::string digits;
  bool negative = false;
  if (const auto integer = as_integer(value); integer && !wants_real) {
    negative = *integer < 0;
    digits = digits_of(*integer, style);
  } else {
    const double real = *as_real(value);
    negative = std::signbit(real);
    if (style.type == '\0' && style.precision < 0) {
      digits = format_real(std::fabs(real));
    } else {
      if (style.type == '\0') style.type = 'g';
      digits = digits_of(runtime, real, style);
    }
  }
  if (style.grouped) digits = group_thousands(digits);
  const std::string sign = negative ? "-" : style.sign == '-' ? "" : std::string(1, style.sign);
  append_padded(sign, digits, style, style.align == '\0' ? '>' : style.align, out);
}

class Percent {
 public:
  Percent(Runtime& runtime, const Text& pattern, const Value& values, Builder& out)
      : runtime_(runtime),
        pattern_(pattern.bytes),
        markup_(pattern.markup),
        values_(values),
        out_(out) {
    const Sequence* sequence = values.sequence();
    tuple_ = sequence != nullptr && sequence->kind == Sequence::Kind::tuple ? sequence : nullptr;
  }

  void write() {
    while (place_ < pattern_.size()) {
      const size_t sign = std::min(pattern_.find('%', place_), pattern_.size());
      out_.append(pattern_.substr(place_, sign - place_));
      place_ = sign + 1;
      if (sign < pattern_.size()) write_one();
    }
    const size_t given = tuple_ != nullptr           ? tuple_->items.size()
                         : values_.dict() != nullptr ? 0
                                                     : 1;
    if (taken_ < given) runtime_.fail("not all arguments converted during string formatting");
  }

 private:
  char look() const {
    if (place_ >= pattern_.size()) runtime_.fail("incomplete format");
    return pattern_[place_];
  }

  Value next() {
    const size_t given = tuple_ != nullptr ? tuple_->items.size() : 1;
    if (taken_ >= given) runtime_.fail("not enough arguments for format string");
    return tuple_ != nullptr ? tuple_->items[taken_++] : (++taken_, values_);
  }

  Value named() {
    const size_t end = find_text(pattern_, ")", ++place_);
    if (end == std::string_view::npos) runtime_.fail("incomplete format key");
    const Dict* dict = values_.dict();
    if (dict == nullptr) runtime_.fail("format requires a mapping");
    const std::string_view name = pattern_.substr(place_, end - place_);
    place_ = end + 1;
    const Value* found = runtime_.find(*dict, name);
    if (found == nullptr)
      runtime_.fail(std::string("the format's mapping has no '") + std::string(name) + "'");
    return *found;
  }

  int64_t number_or_star() {
    if (look() != '*') return take_number(runtime_, pattern_, place_);
    ++place_;
    return std::min(integer_argument(runtime_, &static_cast<const Value&>(next()), 0),
                    static_cast<int64_t>(runtime_.limits().text_bytes));
  }

  void write_one() {
    if (look() == '%') {
      out_.append('%');
      ++place_;
      return;
    }
    Style style;
    const bool by_name = look() == '(';
    const Value given = by_name ? named() : Value();
    for (; std::string_view("-+ #0").find(look()) != std::string_view::npos; ++place_) {
      const char flag = look();
      if (flag == '-') style.align = '<';
      if (flag == '0' && style.align == '\0') style.align = '=';
      if (flag == '+' || (flag == ' ' && style.sign != '+')) style.sign = flag;
      if (flag == '#') style.alternate = true;
    }
    style.width = number_or_star();
    if (look() == '.') {
      ++place_;
      style.precision = number_or_star();
    }
    while (look() == 'h' || look() == 'l' || look() == 'L')
      ++place_;
    style.type = look();
    ++place_;
    convert(by_name ? given : next(), style);
  }

  std::string character(const Value& value) const {
    std::string out;
    if (value.text() != nullptr) {
      out = value.text()->bytes;
    } else if (const auto code = as_integer(value); code && *code >= 0 && *code <= 0x10FFFF) {
      append_utf8(static_cast<char32_t>(*code), out);
    }
    if (count_characters(out) != 1 || !is_valid_utf8(out)) {
      runtime_.fail("%c requires an int or a character");
    }
    return out;
  }

  void convert(const Value& value, Style style) {
    if (style.align == '\0') style.align = '>';
    if (style.type == 's' || style.type == 'r' || style.type == 'a') {
      if (style.align == '=') style.align = '>';
      std::string text =
          style.type == 's' ? std::string(to_text(runtime_, value).bytes) : repr(runtime_, value);
      if (markup_ && (value.text() == nullptr || !value.text()->markup)) {
        Builder escaped(runtime_);
        append_escaped(text, escaped);
        text = escaped.take();
      }
      return append_text(text, style, out_);
    }
    if (style.type == 'c') return append_text(character(value), style, out_);
    if (style.align == '=') style.fill = "0";
    if (style.type == 'i' || style.type == 'u') style.type = 'd';
    if (std::string_view("dxXofFeEgG").find(style.type) == std::string_view::npos) {
      runtime_.fail(std::string("unsupported format character '") + std::string(1, style.type) +
                    "'");
    }
    if (!as_real(value)) {
      runtime_.fail(std::string("%") + style.type + " format: a real number is required, not " +
                    type_name(value));
    }
    const double* real = value.as<double>();
    if (real != nullptr && (style.type == 'd' || (style.type | 0x20) == 'x' || style.type == 'o')) {
      if (style.type != 'd') runtime_.fail("an integer is required");
      style.precision = -1;
      return append_number(runtime_, Value(whole_part(runtime_, *real)), style, out_);
    }
    append_number(runtime_, value, style, out_);
  }

  Runtime& runtime_;
  std::string_view pattern_;
  bool markup_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  Builder& out_;
  size_t place_ = 0, taken_ = 0;
};

class Braces {
 public:
  Braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments, Builder& out)
      : runtime_(runtime), pattern_(pattern), arguments_(arguments), out_(out) {}

  void write() {
    while (place_ < pattern_.size()) {
      const char c = pattern_[place_++];
      const bool twice = place_ < pattern_.size() && pattern_[place_] == c;
      if ((c == '{' || c == '}') && twice) {
        out_.append(c);
        ++place_;
      } else if (c == '{') {
        write_field();
      } else if (c == '}') {
        runtime_.fail("single '}' encountered in format string");
      } else {
        out_.append(c);
      }
    }
  }

 private:
  void write_field() {
    const size_t end = pattern_.find('}', place_);
    if (end == pattern_.npos) runtime_.fail("expected '}' before end of string");
    const std::string_view field = pattern_.substr(place_, end - place_);
    place_ = end + 1;
    if (field.find('{') != field.npos) runtime_.fail("nested fields of format are not supported");
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != name.npos) {
      conversion = mark + 1 < name.size() ? name[mark + 1] : '\0';
      name = name.substr(0, mark);
    }
    Value value = look_up(name);
    if (conversion == 'r') value = runtime_.text(repr(runtime_, value));
    if (conversion == 's') value = to_text(runtime_, value);
    write_value(value, colon < field.size() ? field.substr(colon + 1) : std::string_view());
  }

  Value look_up(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    for (name.remove_prefix(end); !name.empty();) {
      const bool item = name[0] == '[';
      const size_t stop =
          item ? name.find(']') : std::min(name.find_first_of(".[", 1), name.size());
      if (stop == name.npos || stop == 1) runtime_.fail("a wrong field name in a format string");
      const std::string_view key = name.substr(1, stop - 1);
      const bool number = item && std::all_of(key.begin(), key.end(), is_digit) && key.size() < 10;
      value = !item    ? attribute_of(runtime_, value, key)
              : number ? item_of(runtime_, value, Value(Integer{std::stoi(std::string(key))}))
                       : item_of(runtime_, value, Value(Text{key}));
      name.remove_prefix(item ? stop + 1 : stop);
    }
    return value;
  }

  Value first(std::string_view name) {
    if (std::all_of(name.begin(), name.end(), is_digit) && name.size() < 10) {
      const size_t index = name.empty() ? next_++ : std::stoul(std::string(name));
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      runtime_.fail(std::string("format() has no argument ") + std::to_string(index));
    }
    for (const auto& [known, value] : arguments_.named) {
      if (known == name) return value;
    }
    runtime_.fail(std::string("format() has no argument '") + std::string(name) + "'");
  }

  void write_value(const Value& value, std::string_view text) {
    if (text.empty()) return append_str(runtime_, value, out_);
    const Style style = parse_style(text);
    if (as_real(value) && style.type != 's') return append_number(runtime_, value, style, out_);
    if (value.text() == nullptr || (style.type != 's' && style.type != '\0')) {
      runtime_.fail(std::string("unsupported format for an object of type '") + type_name(value) +
                    "'");
    }
    append_text(value.text()->bytes, style, out_);
  }

  Style parse_style(std::string_view text) {
    Style style;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    size_t place = 0;
    const size_t fill = first_character(text).size();
    if (fill < text.size() && is_align(text[fill])) {
      style.fill = text.substr(0, fill);
      style.align = text[fill];
      place = fill + 1;
    } else if (is_align(text[0])) {
      style.align = text[place++];
    }
    const auto at = [&](std::string_view signs) {
      return place < text.size() && signs.find(text[place]) != signs.npos;
    };
    if (at("+- ")) style.sign = text[place++];
    if (at("#")) style.alternate = ++place > 0;
    if (at("0") && style.align == '\0') {
      style.align = '=';
      style.fill = "0";
    }
    style.width = take_number(runtime_, text, place);
    if (at(",")) style.grouped = ++place > 0;
    if (at(".")) style.precision = take_number(runtime_, text, ++place);
    if (at("sdfFeEgGxXob%")) style.type = text[place++];
    if (place < text.size())
      runtime_.fail(std::string("invalid format specifier '") + std::string(text) + "'");
    return style;
  }

  Runtime& runtime_;
  std::string_view pattern_;
  const Arguments& arguments_;
  Builder& out_;
  size_t place_ = 0, next_ = 0;
};

}  // namespace

Value format_percent(Runtime& runtime, const Text& pattern, const Value& values) {
  Builder out(runtime);
  Percent(runtime, pattern, values, out).write();
  return out.value(pattern.markup);
}

Value format_braces(Runtime& runtime, const Text& pattern, const Arguments& arguments) {
  Builder out(runtime);
  Braces(runtime, pattern.bytes, arguments, out).write();
  return out.value(pattern.markup);
}

}  // namespace walsh::jinja
