#include "text/jinja/lexer.h"

#include <algorithm>

#include "io/printable.h"
#include "text/jinja/letters.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}

// Converts line ends to line feeds; one at the end is dropped.
std::string normal_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name)
      : text_(normal_lines(source)), name_(name) {}

  std::vector<Token> run() {
    while (place_ < text_.size())
      read_data();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorCode::bad_input, name_ + ", line " + std::to_string(line_), reason);
  }

  bool at(std::string_view sign) const {
    return std::string_view(text_).substr(place_, sign.size()) == sign;
  }
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text)});
  }

  // Moves on to `place` and counts the lines on the way.
  void skip_to(size_t place) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(place_),
                                         text_.begin() + static_cast<ptrdiff_t>(place), '\n'));
    place_ = place;
  }

  void skip_space() {
    const std::string_view rest = std::string_view(text_).substr(place_);
    skip_to(place_ + rest.size() - strip_left(rest).size());
  }

  // Handles the end of a tag. `-` removes white space after it; without it the line end of a block
  // is removed.
  void end_tag(bool minus, bool block, bool plus = false) {
    line_starting_ = text_[place_ - 1] == '\n';
    if (minus) {
      const size_t before = place_;
      skip_space();
      line_starting_ = place_ > before && text_[place_ - 1] == '\n';
    } else if (block && !plus && place_ < text_.size() && text_[place_] == '\n') {
      skip_to(place_ + 1);
      line_starting_ = true;
    }
  }

  // Adds text that ends at a tag with `sign` after its bracket; with `lstrip` white space in front
  // of the tag on its line is removed.
  void add_data(std::string_view data, char sign, bool lstrip) {
    std::string_view kept = data;
    if (sign == '-') {
      kept = strip_right(data);
    } else if (sign != '+' && lstrip) {
      const size_t line_begin = data.rfind('\n') + 1;  // without a line feed npos + 1 gives 0
      if ((line_begin > 0 || line_starting_) && line_begin < data.size() &&
          strip_left(data.substr(line_begin)).empty()) {
        kept = data.substr(0, line_begin);
      }
    }
    if (!kept.empty()) add(Token::Kind::data, std::string(kept));
  }

  // Reads up to the next tag, and past it if it is a comment or raw.
  void read_data() {
    size_t open = place_;
    do {
      open = text_.find('{', open);
      if (open == text_.npos || open + 1 == text_.size()) {
        add(Token::Kind::data, text_.substr(place_));
        skip_to(text_.size());
        return;
      }
      ++open;
    } while (text_[open] != '{' && text_[open] != '%' && text_[open] != '#');
    const char kind = text_[open];
    const char sign = open + 1 < text_.size() && (text_[open + 1] == '-' || text_[open + 1] == '+')
                          ? text_[open + 1]
                          : '\0';
    add_data(std::string_view(text_).substr(place_, open - 1 - place_), sign, kind != '{');
    skip_to(open + 1 + (sign == '\0' ? 0 : 1));
    line_starting_ = false;
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    read_tag(kind == '%');
  }

  void read_comment() {
    const size_t end = text_.find("#}", place_);
    if (end == text_.npos) fail("missing end of comment tag");
    // The sign may be the one that the comment begins with: {#-#}.
    const char sign = end > place_ ? text_[end - 1] : '\0';
    skip_to(end + 2);
    end_tag(sign == '-', true, sign == '+');
  }

  // Matches `NAME %}` or `NAME -%}` at `place`. Returns its end and sets the sign, or returns npos.
  size_t match_tag(size_t place, std::string_view name, char& sign) const {
    const auto skip = [&] {
      const std::string_view rest = std::string_view(text_).substr(place);
      place += rest.size() - strip_left(rest).size();
    };
    skip();
    if (text_.compare(place, name.size(), name) != 0) return text_.npos;
    place += name.size();
    skip();
    sign = place < text_.size() && (text_[place] == '-' || text_[place] == '+') ? text_[place] : 0;
    if (sign != 0) ++place;
    return text_.compare(place, 2, "%}") == 0 ? place + 2 : text_.npos;
  }

  // Reads a raw block if one begins after "{%". Everything up to endraw is data.
  bool read_raw() {
    char sign = 0;
    const size_t begin = match_tag(place_, "raw", sign);
    if (begin == text_.npos || sign == '+') return false;
    skip_to(begin);
    end_tag(sign == '-', false);
    for (size_t open = place_;; open += 2) {
      open = text_.find("{%", open);
      if (open == text_.npos) fail("missing end of raw directive");
      const char left = open + 2 < text_.size() ? text_[open + 2] : '\0';
      const size_t end = match_tag(open + 2 + (left == '-' || left == '+' ? 1 : 0), "endraw", sign);
      if (end == text_.npos) continue;
      add_data(std::string_view(text_).substr(place_, open - place_), left, true);
      skip_to(end);
      end_tag(sign == '-', true, sign == '+');
      return true;
    }
  }

  // Reads the expression or statement of a tag.
  void read_tag(bool block) {
    add(block ? Token::Kind::block_begin : Token::Kind::variable_begin, "");
    const std::string_view close = block ? "%}" : "}}";
    std::vector<char> open;  // the end of a tag is not looked for inside open brackets
    for (;;) {
      skip_space();
      if (place_ == text_.size()) fail("the template ends inside a tag");
      if (open.empty()) {
        const char sign = text_[place_];
        const bool signed_end =
            (sign == '-' || (sign == '+' && block)) && text_.compare(place_ + 1, 2, close) == 0;
        if (signed_end || at(close)) {
          skip_to(place_ + (signed_end ? 3 : 2));
          add(block ? Token::Kind::block_end : Token::Kind::variable_end, "");
          return end_tag(signed_end && sign == '-', block, signed_end && sign == '+');
        }
      }
      read_token(open);
    }
  }

  void read_token(std::vector<char>& open) {
    const char c = text_[place_];
    if (is_digit(c)) return read_number();
    if (is_word(c)) {
      size_t end = place_;
      while (end < text_.size() && is_word(text_[end]))
        ++end;
      add(Token::Kind::name, text_.substr(place_, end - place_));
      place_ = end;
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else {
      read_sign(open);
    }
  }

  void read_sign(std::vector<char>& open) {
    for (const std::string_view sign : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!at(sign)) continue;
      add(Token::Kind::sign, std::string(sign));
      place_ += 2;
      return;
    }
    const char c = text_[place_];
    if (std::string_view("+-*/%~<>=.,:;|()[]{}").find(c) == std::string_view::npos) {
      const std::string_view shown = first_character(std::string_view(text_).substr(place_));
      fail(std::string("unexpected character '") + printable(shown) + "'");
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(std::string("unexpected '") + c + "'");
      if (open.back() != c) {
        fail(std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      }
      open.pop_back();
    }
    add(Token::Kind::sign, std::string(1, c));
    ++place_;
  }

  // Returns the end of a run of digits with single underscores between them.
  size_t digits_end(size_t place, std::string_view digits) const {
    const auto is_one = [&](size_t at) {
      return at < text_.size() && digits.find(text_[at]) != digits.npos;
    };
    while (is_one(place) || (place < text_.size() && text_[place] == '_' && is_one(place + 1))) {
      ++place;
    }
    return place;
  }

  void read_number() {
    constexpr std::string_view kDecimal = "0123456789";
    const char base =
        place_ + 1 < text_.size() ? static_cast<char>(text_[place_ + 1] | 0x20) : '\0';
    size_t end = place_;
    bool real = false;
    if (text_[place_] == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      end = digits_end(place_ + 2, base == 'x'   ? "0123456789abcdefABCDEF"
                                   : base == 'o' ? "01234567"
                                                 : "01");
      if (end == place_ + 2) fail("a number without digits");
    } else {
      end = digits_end(place_, kDecimal);
      // After a dot a number is an index: `list.0.1`.
      const bool index = place_ > 0 && text_[place_ - 1] == '.';
      const auto digit_at = [&](size_t at) { return at < text_.size() && is_digit(text_[at]); };
      if (!index && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
        real = true;
        end = digits_end(end + 1, kDecimal);
      }
      if (!index && end < text_.size() && (text_[end] | 0x20) == 'e') {
        const bool has_sign =
            end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
        if (digit_at(end + 1 + (has_sign ? 1 : 0))) {
          real = true;
          end = digits_end(end + 1 + (has_sign ? 1 : 0), kDecimal);
        }
      }
    }
    std::string digits = text_.substr(place_, end - place_);
    std::erase(digits, '_');
    if (!real && base != 'x' && base != 'o' && base != 'b' && digits.size() > 1 &&
        digits[0] == '0' && digits.find_first_not_of('0') != digits.npos) {
      fail("a number begins with 0");
    }
    add(real ? Token::Kind::real : Token::Kind::integer, std::move(digits));
    place_ = end;
  }

  void read_string(char quote) {
    size_t end = place_ + 1;
    while (end < text_.size() && text_[end] != quote)
      end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a string without an end");
    const std::string_view body = std::string_view(text_).substr(place_ + 1, end - place_ - 1);
    add(Token::Kind::string, unescape(body));
    skip_to(end + 1);
  }

  // Resolves Python's escapes; other backslashes stay.
  std::string unescape(std::string_view body) const {
    constexpr std::string_view kNames = "abfnrtv\\'\"", kCodes = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\' || i + 1 == body.size()) {
        out += body[i];
        continue;
      }
      const char c = body[++i];
      if (const size_t place = kNames.find(c); place != kNames.npos) {
        out += kCodes[place];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code(body.substr(i + 1, size), size, 16, out);
        i += size;
      } else if (c >= '0' && c <= '7') {
        size_t size = 1;
        while (size < 3 && i + size < body.size() && body[i + size] >= '0' &&
               body[i + size] <= '7') {
          ++size;
        }
        append_code(body.substr(i, size), size, 8, out);
        i += size - 1;
      } else if (c == 'N') {
        fail("characters by name are not supported in strings");
      } else if (c != '\n') {  // an escaped line end is dropped
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void append_code(std::string_view digits, size_t size, int base, std::string& out) const {
    uint32_t code = 0;
    for (const char c : digits) {
      const int digit = is_digit(c)                              ? c - '0'
                        : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                 : base;
      if (digit >= base) fail("a truncated escape in a string");
      code = code * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit);
    }
    if (digits.size() < size) fail("a truncated escape in a string");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("an escape in a string that is not a character");
    }
    append_utf8(code, out);
  }

  std::string text_, name_;
  size_t place_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text after the last tag begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view name) {
  return Lexer(source, name).run();
}

}  // namespace walsh::jinja
