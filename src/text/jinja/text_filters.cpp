// Implements filters of texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/letters.h"
#include "text/jinja/operations.h"
#include "text/jinja/printing.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

// Applies the str method of this name to the value as text.
Value by_method(Runtime& runtime, std::string_view name, const Value& value,
                const Arguments& arguments) {
  return find_text_method(name)(runtime, Value(to_text(runtime, value)), arguments);
}

Value upper_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return by_method(runtime, "upper", value, arguments);
}
Value lower_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return by_method(runtime, "lower", value, arguments);
}
Value capitalize_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return by_method(runtime, "capitalize", value, arguments);
}
Value trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return by_method(runtime, "strip", value, arguments);
}

Value center(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "center", arguments, {"width"});
  const Value width = bound[0] != nullptr ? *bound[0] : Value(Integer{80});
  return by_method(runtime, "center", value, {.positional = {width}, .named = {}});
}

// Begins every word with a capital. Words begin after white space, hyphens and opening brackets.
Value title(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "title", arguments, {});
  const Text text = to_text(runtime, value);
  runtime.pass(text.bytes.size());
  std::string out;
  for (std::string_view rest = text.bytes; !rest.empty();) {
    size_t end = 0;
    const auto separates = [&] {
      const char32_t c = decode_utf8(rest.substr(end)).code;
      return is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                             std::string_view::npos);
    };
    const bool separator = separates();
    while (end < rest.size() && separates() == separator) {
      end += decode_utf8(rest.substr(end)).size;
    }
    const std::string_view run = rest.substr(0, end), head = first_character(run);
    out += separator ? std::string(run) : upper(head) + lower(run.substr(head.size()));
    rest.remove_prefix(end);
  }
  return runtime.text(out);
}

Value replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "replace", arguments, {"old", "new", "count"});
  if (bound[0] == nullptr || bound[1] == nullptr) runtime.fail("replace expects two arguments");
  const bool all = bound[2] == nullptr || bound[2]->none();
  const int64_t limit = all ? -1 : integer_argument(runtime, bound[2], -1);
  const Text text{to_text(runtime, value).bytes};
  return replaced(runtime, text, to_text(runtime, *bound[0]).bytes,
                  to_text(runtime, *bound[1]).bytes, limit);
}

Value indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "indent", arguments, {"width", "first", "blank"});
  std::string by;
  if (bound[0] != nullptr && bound[0]->text() != nullptr) {
    by = bound[0]->text()->bytes;
  } else {
    const int64_t width = integer_argument(runtime, bound[0], 4);
    if (width > static_cast<int64_t>(runtime.limits().text_bytes)) {
      runtime.fail_limit("an indent is too wide");
    }
    by.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  const bool first = bound[1] != nullptr && truth(*bound[1]);
  const bool blank = bound[2] != nullptr && truth(*bound[2]);
  const Text text = to_text(runtime, value);
  runtime.pass(text.bytes.size());
  Builder with_end(runtime);  // a final line end is then followed by an empty line
  with_end.append(text.bytes);
  with_end.append('\n');
  Builder out(runtime);
  bool begun = false;
  for (const std::string_view line : lines_of(with_end.text(), false)) {
    if (begun) out.append('\n');
    if (begun ? blank || !line.empty() : first) out.append(by);
    out.append(line);
    begun = true;
  }
  return out.value(text.markup);
}

Value truncate(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text text = to_text(runtime, value);
  const int64_t length = integer_argument(runtime, bound[0], 255);
  const std::string_view end = bound[2] == nullptr ? "..." : text_argument(runtime, *bound[2]);
  const int64_t kept = length - static_cast<int64_t>(count_characters(end));
  if (kept < 0) runtime.fail("truncate: the length is less than that of the end");
  runtime.pass(text.bytes.size());
  const auto size = static_cast<int64_t>(count_characters(text.bytes));
  if (size <= length + integer_argument(runtime, bound[3], 5)) return text;
  std::string_view head = text.bytes.substr(0, offset_of(text.bytes, static_cast<size_t>(kept)));
  if (bound[1] == nullptr || !truth(*bound[1])) {
    head = head.substr(0, std::min(head.rfind(' '), head.size()));
  }
  Builder out(runtime);
  out.append(head);
  out.append(end);
  return out.value(text.markup);
}

Value wordcount(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "wordcount", arguments, {});
  std::string_view text = to_text(runtime, value).bytes;
  runtime.pass(text.size());
  Integer words = 0;
  for (bool inside = false; !text.empty();) {
    const Utf8Unit unit = decode_utf8(text);
    const bool word = is_alphanumeric(unit.code) || unit.code == '_';
    words += word && !inside ? 1 : 0;
    inside = word;
    text.remove_prefix(unit.size);
  }
  return words;
}

Value format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    runtime.fail("format takes positional or keyword arguments, not both");
  }
  Value values = runtime.tuple(arguments.positional);
  if (!arguments.named.empty()) {
    Dict* const named = runtime.dict();
    for (const auto& [name, given] : arguments.named)
      runtime.put(*named, Value(Text{name}), given);
    values = named;
  }
  return format_percent(runtime, to_text(runtime, value), values);
}

Value safe(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "safe", arguments, {});
  return Text{to_text(runtime, value).bytes, true};
}

template <bool force>
Value escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "escape", arguments, {});
  const Text text = to_text(runtime, value);
  if (text.markup && !force) return text;
  Builder out(runtime);
  append_escaped(text.bytes, out);
  return out.value(true);
}

Value string(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "string", arguments, {});
  return to_text(runtime, value);
}

// Returns the integer, or nothing if the text is none. Fails for one that is too large.
std::optional<Integer> parse_integer(const Runtime& runtime, std::string_view text, int base) {
  text = strip_left(strip_right(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (prefix != '\0' && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == prefix) {
    text.remove_prefix(2);
  }
  Integer value = 0;
  bool digit_before = false, overflow = false;
  for (const char c : text) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : base;
    if (digit >= base) return std::nullopt;
    overflow |= __builtin_mul_overflow(value, base, &value);
    overflow |= __builtin_sub_overflow(value, digit, &value);  // there is one more below zero
    digit_before = true;
  }
  if (!digit_before) return std::nullopt;
  if (overflow || (!negative && value == std::numeric_limits<Integer>::min())) {
    fail_too_large(runtime);
  }
  return negative ? value : -value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip_left(strip_right(text));
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const bool small = text.find("e-") != text.npos || text.find("E-") != text.npos;
    value = small ? 0.0 : HUGE_VAL;
    return text[0] == '-' ? -value : value;
  }
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// Returns the value that Jinja2's int() and float() give if `value` cannot be converted.
Value fallback(Runtime& runtime, const Value& value, const Value* given, const Value& missing) {
  if (const Undefined* undefined = value.as<Undefined>()) runtime.fail(std::string(undefined->why));
  return given != nullptr ? *given : missing;
}

Value to_integer(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "int", arguments, {"default", "base"});
  std::optional<double> real = as_real(value);
  if (const auto integer = as_integer(value)) return *integer;
  if (const Text* text = value.text()) {
    const auto base = static_cast<int>(integer_argument(runtime, bound[1], 10));
    if (base < 2 || base > 36) runtime.fail("int: the base is not from 2 to 36");
    if (const auto parsed = parse_integer(runtime, text->bytes, base)) return *parsed;
    real = parse_real(text->bytes);
    if (real && std::isinf(*real)) real.reset();
  }
  if (real && !std::isnan(*real)) return whole_part(runtime, *real);
  return fallback(runtime, value, bound[0], Value(Integer{0}));
}

Value to_real(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "float", arguments, {"default"});
  std::optional<double> real = as_real(value);
  if (value.text() != nullptr) real = parse_real(value.text()->bytes);
  return real ? Value(*real) : fallback(runtime, value, bound[0], Value(0.0));
}

Value absolute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "abs", arguments, {});
  if (const double* real = value.as<double>()) return std::fabs(*real);
  const auto integer = as_integer(value);
  if (!integer) runtime.fail(std::string("bad operand type for abs(): '") + type_name(value) + "'");
  return *integer < 0 ? negate(runtime, value) : Value(*integer);
}

// Rounds an integer, or a float's integral part whose fraction is `rest`, to a multiple of 10 to
// the power of -digits, half to even.
Integer round_whole(const Runtime& runtime, Integer value, double rest, int digits) {
  if (digits < -38) return 0;  // every integer is below half of such a unit
  Unsigned unit = 1;
  for (; digits < 0; ++digits)
    unit *= 10;
  const Unsigned below = magnitude(value) % unit, above = unit - below;
  Unsigned parts = magnitude(value) / unit;
  if (below > above || (below == above && (rest != 0 || parts % 2 == 1))) ++parts;
  if (parts * unit > magnitude(std::numeric_limits<Integer>::max())) fail_too_large(runtime);
  const auto size = static_cast<Integer>(parts * unit);
  return value < 0 ? -size : size;
}

// Rounds the exact value to decimals, half to even, as Python does.
double round_decimal(const Runtime& runtime, double value, int digits) {
  if (!std::isfinite(value)) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, -digits), whole = std::trunc(value);
    if (std::fabs(value) >= 0x1p127) return std::nearbyint(value / unit) * unit;
    const Integer rounded =
        round_whole(runtime, static_cast<Integer>(whole), value - whole, digits);
    return std::copysign(static_cast<double>(rounded), value);
  }
  char buffer[700];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                                 std::min(digits, 300));
  double rounded = value;
  std::from_chars(buffer, end.ptr, rounded);
  return rounded;
}

Value round(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "round", arguments, {"precision", "method"});
  const auto real = as_real(value);
  if (!real) runtime.fail(std::string("round is applied to '") + type_name(value) + "'");
  const auto digits =
      static_cast<int>(std::clamp<int64_t>(integer_argument(runtime, bound[0], 0), -300, 300));
  const std::string_view method =
      bound[1] == nullptr ? "common" : text_argument(runtime, *bound[1]);
  if (method == "common") {
    const auto integer = as_integer(value);
    if (!integer) return round_decimal(runtime, *real, digits);
    return digits >= 0 ? *integer : round_whole(runtime, *integer, 0, digits);
  }
  if (method != "ceil" && method != "floor") {
    runtime.fail("round: the method is not common, ceil or floor");
  }
  if (as_integer(value) && digits >= 0) return *real;
  const double unit = std::pow(10.0, digits), scaled = *real * unit;
  // Python returns an integer here, which has no negative zero.
  return ((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / unit;
}

Value to_json(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound =
      bind(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound[0] != nullptr && truth(*bound[0]);
  style.sorted = bound[3] != nullptr && truth(*bound[3]);
  std::string spaces;
  if (bound[1] != nullptr && !bound[1]->none()) {
    style.lines = true;
    style.between = ",";
    if (bound[1]->text() != nullptr) {
      style.indent = bound[1]->text()->bytes;
    } else {
      spaces.assign(static_cast<size_t>(
                        std::clamp<int64_t>(integer_argument(runtime, bound[1], 0), 0, 10'000)),
                    ' ');
      style.indent = spaces;
    }
  }
  if (bound[2] != nullptr && !bound[2]->none()) {
    const std::vector<Value> separators = iterate(runtime, *bound[2]);
    if (separators.size() != 2) runtime.fail("tojson: the separators are not two");
    style.between = text_argument(runtime, separators[0]);
    style.behind_key = text_argument(runtime, separators[1]);
  }
  Builder out(runtime);
  append_json(runtime, value, style, out);
  return out.value();
}

constexpr NamedFunction kFilters[] = {
    {"upper", upper_filter},   {"lower", lower_filter}, {"capitalize", capitalize_filter},
    {"title", title},          {"trim", trim},          {"center", center},
    {"replace", replace},      {"indent", indent},      {"truncate", truncate},
    {"wordcount", wordcount},  {"format", format},      {"safe", safe},
    {"escape", escape<false>}, {"e", escape<false>},    {"forceescape", escape<true>},
    {"string", string},        {"int", to_integer},     {"float", to_real},
    {"abs", absolute},         {"round", round},        {"tojson", to_json},
};

}  // namespace

Function find_text_filter(std::string_view name) {
  return look_up(kFilters, name);
}

Function find_filter(std::string_view name) {
  const Function function = find_text_filter(name);
  return function != nullptr ? function : find_sequence_filter(name);
}

}  // namespace walsh::jinja
