#include <algorithm>
#include <cmath>

#include "text/jinja/operations.h"
#include "text/jinja/printing.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

class Writer {
 public:
  Writer(Runtime& runtime, const JsonStyle& style, Builder& out)
      : runtime_(runtime), style_(style), out_(out) {}

  void write(const Value& value) {
    runtime_.step();
    const Sequence* sequence = value.sequence();
    if (const Text* text = value.text()) {
      write_text(text->bytes);
    } else if (value.dict() != nullptr) {
      write_dict(*value.dict());
    } else if (sequence != nullptr && (sequence->kind == Sequence::Kind::list ||
                                       sequence->kind == Sequence::Kind::tuple)) {
      write_list(sequence->items);
    } else {
      out_.append(scalar(value));
    }
  }

 private:
  // Writes numbers, booleans and null, as members and as keys.
  std::string scalar(const Value& value) const {
    if (value.none()) return "null";
    if (const bool* b = value.as<bool>()) return *b ? "true" : "false";
    if (const Integer* integer = value.as<Integer>()) return format_integer(*integer);
    if (const double* real = value.as<double>()) {
      if (std::isnan(*real)) return "NaN";
      if (std::isinf(*real)) return *real < 0 ? "-Infinity" : "Infinity";
      return format_real(*real);
    }
    runtime_.fail(std::string("object of type ") + type_name(value) + " is not JSON serializable");
  }

  void write_escape(uint32_t unit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out_.append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4)
      out_.append(kDigits[(unit >> shift) & 15]);
  }

  void write_text(std::string_view text) {
    out_.append('"');
    while (!text.empty()) {
      const Utf8Unit unit = decode_utf8(text);
      write_character(unit.code, text.substr(0, unit.size));
      text.remove_prefix(unit.size);
    }
    out_.append('"');
  }

  void write_character(char32_t c, std::string_view bytes) {
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const size_t place = c < 0x80 ? kShort.find(static_cast<char>(c)) : kShort.npos;
    if (place != kShort.npos) {
      out_.append('\\');
      out_.append(kLetters[place]);
    } else if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000)) {
      write_escape(c);
    } else if (style_.ascii && c >= 0x10000) {
      write_escape(0xD800 + ((c - 0x10000) >> 10));
      write_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out_.append(bytes);
    }
  }

  void begin_line() {
    if (!style_.lines) return;
    out_.append('\n');
    for (int i = 0; i < level_; ++i)
      out_.append(style_.indent);
  }

  template <typename Members, typename Write>
  void write_members(const Members& members, char open, char close, Write write_member) {
    const Runtime::Deeper deeper(runtime_);
    out_.append(open);
    ++level_;
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_.append(style_.between);
      begin_line();
      write_member(members[i]);
    }
    --level_;
    if (!members.empty()) begin_line();
    out_.append(close);
  }

  void write_list(const std::vector<Value>& items) {
    write_members(items, '[', ']', [&](const Value& item) { write(item); });
  }

  void write_dict(const Dict& dict) {
    std::vector<std::pair<Value, Value>> entries = dict.entries;
    runtime_.charge(entries.size() * sizeof(entries[0]));
    if (style_.sorted) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return compare(runtime_, a.first, b.first, "<") < 0;
      });
    }
    write_members(entries, '{', '}', [&](const auto& entry) {
      const Text* key = entry.first.text();
      write_text(key != nullptr ? key->bytes : std::string_view(scalar(entry.first)));
      out_.append(style_.behind_key);
      write(entry.second);
    });
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Builder& out_;
  int level_ = 0;
};

}  // namespace

void append_json(Runtime& runtime, const Value& value, const JsonStyle& style, Builder& out) {
  Writer(runtime, style, out).write(value);
}

}  // namespace walsh::jinja
