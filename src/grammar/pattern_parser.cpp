#include "grammar/pattern_parser.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <tuple>
#include <utility>

#include "grammar/character_classes.h"
#include "io/printable.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr int kMaxGroups = 100;  // groups may nest this deep
constexpr int64_t kMaxRepetitions = 10'000;

const CodeSet& digits() {
  static const CodeSet set = {{'0', '9'}};
  return set;
}
const CodeSet& spaces() {
  static const CodeSet set = normal_set({{9, 13},
                                         {' ', ' '},
                                         {0xA0, 0xA0},
                                         {0x1680, 0x1680},
                                         {0x2000, 0x200A},
                                         {0x2028, 0x2029},
                                         {0x202F, 0x202F},
                                         {0x205F, 0x205F},
                                         {0x3000, 0x3000},
                                         {0xFEFF, 0xFEFF}});
  return set;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where, PatternUse use)
      : text_(text), where_(where), all_codes_(use != PatternUse::json_string) {}

  Part parse() {
    Part all = choice(0);
    if (at_ < text_.size()) fail("')' is not supported here");
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorCode::bad_input, where_,
                fmt::format("the pattern at byte {}: {}", at_, reason));
  }
  bool has(std::string_view token) const { return text_.substr(at_).starts_with(token); }
  bool take(std::string_view token) {
    if (!has(token)) return false;
    at_ += token.size();
    return true;
  }
  CodeSet others(const CodeSet& set) const {
    return all_codes_ ? complement(set) : common_part(complement(set), printable_codes());
  }
  Part choice(int depth) {
    Part all{Part::Kind::choice};
    do {
      Part one;
      while (at_ < text_.size() && !has("|") && !has(")"))
        one.parts.push_back(repeated(depth));
      all.parts.push_back(std::move(one));
    } while (take("|"));
    return all;
  }

  Part repeated(int depth) {
    Part part = atom(depth);
    const bool consumes = part.kind != Part::Kind::assertion && part.kind != Part::Kind::look;
    while (const auto range = repetition()) {
      if (!consumes) fail("a group that may be empty cannot be repeated here");
      take("?");  // lazy repetition gives the same set of texts
      if (has("+")) fail("possessive repetition is not supported");
      Part repeat{Part::Kind::repeat};
      repeat.least = range->first;
      repeat.most = range->second;
      repeat.parts.push_back(std::move(part));
      part = std::move(repeat);
    }
    return part;
  }

  std::optional<std::pair<int64_t, int64_t>> repetition() {
    if (take("*")) return std::pair<int64_t, int64_t>(0, -1);
    if (take("+")) return std::pair<int64_t, int64_t>(1, -1);
    if (take("?")) return std::pair<int64_t, int64_t>(0, 1);
    if (!counts_repetitions()) return std::nullopt;  // otherwise a brace is a character
    take("{");
    const auto least = number();
    std::optional<int64_t> most = least;
    if (take(",")) most = has("}") ? -1 : number();
    take("}");
    if (*most >= 0 && *most < *least)
      fail("the upper bound of the repetitions is below the lower bound");
    return std::pair(*least, *most);
  }

  // Returns whether {n}, {n,} or {n,m} is next.
  bool counts_repetitions() const {
    size_t at = at_;
    const auto digits = [&] {
      const size_t first = at;
      while (at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0)
        ++at;
      return at > first;
    };
    if (!has("{")) return false;
    ++at;
    if (!digits()) return false;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      digits();
    }
    return at < text_.size() && text_[at] == '}';
  }

  std::optional<int64_t> number() {
    std::optional<int64_t> value;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
      value = value.value_or(0) * 10 + (text_[at_] - '0');
      if (*value > kMaxRepetitions) fail(fmt::format("more than {} repetitions", kMaxRepetitions));
    }
    return value;
  }

  Part atom(int depth) {
    if (take("(")) return group(depth);
    if (take("^")) return assertion(Assertion::begin);
    if (take("$")) return assertion(Assertion::end);
    if (take("\\b")) return assertion(Assertion::word_edge);
    if (take("\\B")) return assertion(Assertion::no_word_edge);
    Part one{Part::Kind::set};
    if (take("[")) {
      one.set = char_class();
    } else if (take(".")) {
      one.set = others({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
    } else {
      for (const char* special : {"*", "+", "?", ")"})
        if (has(special) || counts_repetitions())
          fail(fmt::format("'{}' is not supported here", special));
      one.set = character_or_class();
    }
    return one;
  }

  static Part assertion(Assertion kind) {
    Part part{Part::Kind::assertion};
    part.assertion = kind;
    return part;
  }

  Part group(int depth) {
    if (depth >= kMaxGroups) fail("groups are nested too deeply");
    Part look{Part::Kind::look};
    bool plain = true;
    for (const auto& [mark, behind, negative] : {std::tuple{"?=", false, false},
                                                 {"?!", false, true},
                                                 {"?<=", true, false},
                                                 {"?<!", true, true}}) {
      if (!plain || !take(mark)) continue;
      plain = false;
      look.behind = behind;
      look.negative = negative;
    }
    if (plain && take("?")) group_name();
    // A negative look-around needs the exact set of texts that must not match.
    const bool before = std::exchange(all_codes_, all_codes_ || look.negative);
    Part inside = choice(depth + 1);
    all_codes_ = before;
    if (!take(")")) fail("a group does not end");
    if (plain) return inside;
    look.parts.push_back(std::move(inside));
    return look;
  }

  void group_name() {
    if (take(":")) return;
    const size_t end = take("<") || take("P<") ? text_.find('>', at_) : text_.npos;
    if (end == text_.npos) fail("this kind of group is not supported");
    at_ = end + 1;
  }

  char32_t hex(int count) {
    char32_t code = 0;
    for (int i = 0; i < count; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) fail("expected hexadecimal digits");
      const int value = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      code = code << 4 | static_cast<char32_t>(value);
    }
    return code;
  }

  // Returns a character, or an escape for one or several characters.
  CodeSet character_or_class() {
    const auto one = [](char32_t code) { return CodeSet{{code, code}}; };
    if (!take("\\")) {
      const Utf8Unit unit = decode_utf8(text_.substr(at_));
      at_ += unit.size;
      return one(unit.code);
    }
    if (at_ >= text_.size()) fail("a backslash at the end");
    const char c = text_[at_++];
    const std::string_view controls = "tnvfr";
    if (const size_t place = controls.find(c); place != controls.npos)
      return one(U"\t\n\v\f\r"[place]);
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return others(digits());
      case 'w':
        return word();
      case 'W':
        return others(word());
      case 's':
        // \\s of some languages lacks U+FEFF, so it is not generated.
        return all_codes_ ? spaces() : common_part(spaces(), complement({{0xFEFF, 0xFEFF}}));
      case 'S':
        return others(spaces());
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'x':
        return one(hex(2));
      case 'u':
        return one(code_point());
      default:
        break;
    }
    if (c == '0' && !(at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))))
      return one(0);
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80)
      fail(fmt::format("'\\{}' is not supported", c));
    return one(static_cast<char32_t>(c));
  }

  // Reads a property. Characters that are not assigned, which a validator with newer tables may
  // know, are neither in a property nor in its negation.
  CodeSet property(bool negated) {
    const size_t end = take("{") ? text_.find('}', at_) : text_.npos;
    if (end == text_.npos) fail("the name of a property in braces is expected");
    const std::string_view name = text_.substr(at_, end - at_);
    const auto set = characters_of(name);
    if (!set) fail(fmt::format("no property is called '{}'", printable(name, 40)));
    at_ = end + 1;
    if (!negated) return *set;
    return all_codes_ ? complement(*set) : common_part(others(*set), *characters_of("Assigned"));
  }

  char32_t code_point() {
    if (!take("{")) {
      const char32_t high = hex(4);
      if (high < 0xD800 || high > 0xDFFF) return high;
      if (high > 0xDBFF || !take("\\u")) fail("half of a character");
      const char32_t low = hex(4);
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a character");
      return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    char32_t code = 0;
    for (int count = 0; !take("}"); ++count) {
      if (count == 6) fail("this is not a character");
      code = code << 4 | hex(1);
    }
    if (code > 0x10FFFF) fail("this is not a character");
    return code;
  }

  CodeSet char_class() {
    const bool negated = take("^");
    CodeSet set;
    while (!take("]")) {
      if (at_ >= text_.size()) fail("a class does not end");
      const CodeSet first = character_or_class();
      if (has("-") && !has("-]")) {
        ++at_;
        if (at_ >= text_.size()) fail("a class does not end");
        const CodeSet last = character_or_class();
        const auto single = [](const CodeSet& s) {
          return s.size() == 1 && s[0].first == s[0].last;
        };
        if (!single(first) || !single(last) || last[0].first < first[0].first)
          fail("this is not a range of characters");
        set.push_back({first[0].first, last[0].first});
      } else {
        set.insert(set.end(), first.begin(), first.end());
      }
    }
    set = normal_set(std::move(set));
    return negated ? others(set) : set;
  }

  const std::string_view text_;
  const std::string& where_;
  bool all_codes_;  // negated classes include control characters
  size_t at_ = 0;
};

}  // namespace

const CodeSet& word() {
  static const CodeSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}

const CodeSet& printable_codes() {
  static const CodeSet set = complement({{0, 0x1F}, {0x7F, 0x9F}});
  return set;
}

Part parse_parts(std::string_view pattern, const std::string& where, PatternUse use) {
  return Parser(pattern, where, use).parse();
}

}  // namespace walsh::grammar
