#include "serve/python_calls.h"

#include <algorithm>

#include "io/wide_integers.h"
#include "serve/call_text.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh {
namespace {

class Calls : CallText {
 public:
  explicit Calls(std::string_view text) : CallText(text) {}

  std::vector<PythonCall> read() {
    std::vector<PythonCall> calls;
    expect('[');
    while (!take(']')) {
      calls.push_back(call());
      if (!take(',') && !next_is(']')) throw NoValue();
    }
    skip_space();
    if (!text_.empty()) throw NoValue();
    return calls;
  }

 private:
  PythonCall call() {
    PythonCall call{name(), OrderedJson::object()};
    expect('(');
    while (!take(')')) {
      std::string key = name();
      expect('=');
      call.arguments[std::move(key)] = value();
      if (!take(',') && !next_is(')')) throw NoValue();
    }
    return call;
  }

  // Reads letters, digits, underscores, hyphens and dots.
  std::string name() {
    skip_space();
    size_t end = 0;
    while (end < text_.size() && is_name(text_[end]))
      ++end;
    if (end == 0) throw NoValue();
    std::string result(text_.substr(0, end));
    text_.remove_prefix(end);
    return result;
  }
  static bool is_name(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || c == '_' || c == '.' || c == '-' || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }

  OrderedJson value() {
    enter();
    OrderedJson result;
    if (next_is('"') || next_is('\'')) {
      result = text();
    } else if (take('[')) {
      result = items(']');
    } else if (take('(')) {
      result = items(')');
    } else if (take('{')) {
      result = braces();
    } else {
      result = word();
    }
    leave();
    return result;
  }

  OrderedJson items(char end) {
    OrderedJson list = OrderedJson::array();
    while (!take(end)) {
      list.push_back(value());
      if (!take(',') && !next_is(end)) throw NoValue();
    }
    return list;
  }

  // Returns a dictionary or a set.
  OrderedJson braces() {
    OrderedJson members = OrderedJson::object(), list = OrderedJson::array();
    while (!take('}')) {
      OrderedJson first = value();
      if (take(':')) {
        if (!first.is_string()) throw NoValue();
        members[first.get<std::string>()] = value();
      } else {
        list.push_back(std::move(first));
      }
      if (!take(',') && !next_is('}')) throw NoValue();
    }
    if (!list.empty() && !members.empty()) throw NoValue();
    return list.empty() ? members : list;
  }

  OrderedJson word() {
    std::string word = name_or_number();
    if (word == "True" || word == "true") return true;
    if (word == "False" || word == "false") return false;
    if (word == "None" || word == "null") return nullptr;
    const size_t digits = word.starts_with('-') ? 1 : 0;
    while (word.size() > digits + 1 && word[digits] == '0' && word[digits + 1] >= '0' &&
           word[digits + 1] <= '9')
      word.erase(digits, 1);
    try {
      OrderedJson number = parse_exact_json(word, "an answer", {.refuse_duplicate_keys = false});
      if (!number.is_structured()) return number;
    } catch (const Error&) {
    }
    throw NoValue();
  }
  std::string name_or_number() {
    skip_space();
    const size_t end = std::min(text_.find_first_of(",)]}: \n\r\t"), text_.size());
    std::string result(text_.substr(0, end));
    text_.remove_prefix(end);
    return result;
  }

  // A quote inside of a text, as in shell commands, ends the text only where a character follows
  // that may follow a value, or nothing.
  bool ends(size_t at) const {
    const size_t next = text_.find_first_not_of(kSpace, at + 1);
    return next == text_.npos || std::string_view(",)]}:").find(text_[next]) != text_.npos;
  }

  std::string text() {
    const char quote = text_.front();
    std::string result;
    size_t at = 1;
    for (; at < text_.size() && !(text_[at] == quote && ends(at)); ++at) {
      if (text_[at] != '\\' || at + 1 == text_.size()) {
        result += text_[at];
        continue;
      }
      at = escape(at + 1, result);
    }
    if (at == text_.size()) throw NoValue();
    text_.remove_prefix(at + 1);
    return result;
  }

  // Adds the character of an escape and returns the place of its last byte. Python keeps the
  // backslash of a text that is no escape.
  size_t escape(size_t at, std::string& out) const {
    static constexpr std::string_view kNames = "ntrbfav0\\'\"", kBytes("\n\t\r\b\f\a\v\0\\'\"", 11);
    const size_t known = kNames.find(text_[at]);
    if (known != kNames.npos) {
      out += kBytes[known];
      return at;
    }
    if (text_[at] == '\n') return at;
    const size_t digits = text_[at] == 'x' ? 2 : text_[at] == 'u' ? 4 : 0;
    uint32_t code = 0;
    size_t read = 0;
    for (; read < digits && at + 1 + read < text_.size(); ++read) {
      const size_t digit =
          std::string_view("0123456789abcdef").find(static_cast<char>(text_[at + 1 + read] | 0x20));
      if (digit == std::string_view::npos) break;
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (digits == 0 || read < digits || (code >= 0xD800 && code < 0xE000)) {
      out += '\\';
      out += text_[at];
      return at;
    }
    append_utf8(code, out);
    return at + digits;
  }
};

}  // namespace

std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view text) {
  try {
    return Calls(text).read();
  } catch (const CallText::NoValue&) {
    return std::nullopt;
  }
}

}  // namespace walsh
