#include "text/jinja/printing.h"

#include <charconv>
#include <cmath>

#include "text/jinja/letters.h"
#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

std::string hex(uint32_t code, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += kDigits[(code >> shift) & 15];
  return out;
}

void append_repr_text(std::string_view text, Builder& out) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out.append(quote);
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    const char32_t c = unit.code;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.append('\\');
      out.append(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c)) {
      out.append(text.substr(0, unit.size));
    } else if (c < 0x100) {
      out.append(std::string("\\x") + hex(c, 2));
    } else {
      out.append(c < 0x10000 ? std::string("\\u") + hex(c, 4) : std::string("\\U") + hex(c, 8));
    }
    text.remove_prefix(unit.size);
  }
  out.append(quote);
}

void append_members(Runtime& runtime, const std::vector<Value>& items, Builder& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(runtime, items[i], out);
  }
}

void append_sequence(Runtime& runtime, const Sequence& sequence, Builder& out) {
  switch (sequence.kind) {
    case Sequence::Kind::iterator:
      runtime.fail("an iterator has no text: use the filter list or join");
    case Sequence::Kind::range:
      out.append(std::string("range(") + format_integer(sequence.start) + ", " +
                 format_integer(sequence.stop));
      if (sequence.step != 1) out.append(std::string(", ") + format_integer(sequence.step));
      out.append(')');
      return;
    case Sequence::Kind::tuple:
      out.append('(');
      append_members(runtime, sequence.items, out);
      out.append(sequence.items.size() == 1 ? ",)" : ")");
      return;
    default:
      const bool view = sequence.kind != Sequence::Kind::list;
      if (view) out.append(type_name(Value(const_cast<Sequence*>(&sequence))) + "(");
      out.append('[');
      append_members(runtime, sequence.items, out);
      out.append(view ? "])" : "]");
  }
}

void append_dict(Runtime& runtime, const Dict& dict, Builder& out) {
  out.append('{');
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(runtime, dict.entries[i].first, out);
    out.append(": ");
    append_repr(runtime, dict.entries[i].second, out);
  }
  out.append('}');
}

}  // namespace

std::string format_digits(Unsigned value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  return digits;
}

std::string format_integer(Integer value) {
  return (value < 0 ? "-" : "") + format_digits(magnitude(value));
}

std::string format_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const std::string_view power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += std::string(".") + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_str(Runtime& runtime, const Value& value, Builder& out) {
  if (const Text* text = value.text()) {
    out.append(text->bytes);
  } else if (!value.undefined()) {
    append_repr(runtime, value, out);
  }
}

Text to_text(Runtime& runtime, const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.undefined()) return {};
  Builder out(runtime);
  append_repr(runtime, value, out);
  return *out.value().text();
}

void append_repr(Runtime& runtime, const Value& value, Builder& out) {
  runtime.step();
  if (value.undefined()) return out.append("Undefined");
  if (value.none()) return out.append("None");
  if (const bool* b = value.as<bool>()) return out.append(*b ? "True" : "False");
  if (const Integer* integer = value.as<Integer>()) return out.append(format_integer(*integer));
  if (const double* real = value.as<double>()) return out.append(format_real(*real));
  const Runtime::Deeper deeper(runtime);  // a namespace may hold itself
  if (const Text* text = value.text()) {
    if (text->markup) out.append("Markup(");
    append_repr_text(text->bytes, out);
    if (text->markup) out.append(')');
  } else if (value.sequence() != nullptr) {
    append_sequence(runtime, *value.sequence(), out);
  } else if (value.dict() != nullptr) {
    append_dict(runtime, *value.dict(), out);
  } else if (const Namespace* space = value.name_space()) {
    out.append("<Namespace {");
    for (size_t i = 0; i < space->attributes.size(); ++i) {
      if (i > 0) out.append(", ");
      append_repr_text(space->attributes[i].first, out);
      out.append(": ");
      append_repr(runtime, space->attributes[i].second, out);
    }
    out.append("}>");
  } else {
    runtime.fail(std::string("a ") + type_name(value) + " has no text");
  }
}

std::string repr(Runtime& runtime, const Value& value) {
  Builder out(runtime);
  append_repr(runtime, value, out);
  return out.take();
}

void append_escaped(std::string_view text, Builder& out) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      case '"':
        out.append("&#34;");
        break;
      default:
        out.append(c);
    }
  }
}

}  // namespace walsh::jinja
