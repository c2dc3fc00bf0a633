#include "text/regex_translate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "text/unicode_table.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Both dialects read these names as a general category.
constexpr std::array<std::string_view, 38> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs", "Any"};
// Both dialects read these names as a binary property; all others are taken for scripts.
constexpr std::array<std::string_view, 6> kBinaryProperties = {
    "Alphabetic", "White_Space", "Uppercase", "Lowercase", "Emoji", "Ideographic"};

// Outside a class, Oniguruma also takes the Latin-1 superscripts and fractions for word characters.
const std::string& oniguruma_word() {
  static const std::string members = word_class() + "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
  return members;
}

// Writes characters as members of a class.
std::string class_members(std::span<const CharacterRange> ranges) {
  std::string members;
  for (const auto& [first, last] : ranges)
    members += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", uint32_t{first}, uint32_t{last});
  return members;
}

// Returns class members that PCRE2's older Unicode tables may lack. A one-letter category has those
// of all categories that begin with the letter.
std::string newer_members(std::string_view name) {
  if (name.size() != 1) return class_members(newer_characters(name));
  std::string members;
  for (const std::string_view category : kCategories) {
    if (category.size() == 2 && category[0] == name[0])
      members += class_members(newer_characters(category));
  }
  return members;
}

// Returns class members that PCRE2's older tables may have too many. Characters that got a category
// since are not assigned there, so that they are in Cn and in C.
std::string older_members(std::string_view name) {
  if (name != "C" && name != "Cn") return {};
  std::string members;
  for (const std::string_view category : kCategories) {
    const bool other = category[0] != 'C' || (name == "Cn" && category != "Cn");
    if (category.size() == 2 && other) members += class_members(newer_characters(category));
  }
  return members;
}

// A StepBudget does not see attempts that fail before the minimum of repetitions is reached.
constexpr unsigned long kMostLeast = 255, kMost = 1000;

bool is_alnum(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
// Reads digits, of which there may be none. 10000 stands for every larger number.
unsigned long number_of(std::string_view digits) {
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits.size() > 4 ? 10000 : digits.empty() ? 0 : std::stoul(std::string(digits));
}
bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

// Translates in one pass over the pattern, without recursion. Groups need no matching up, because
// PCRE2 checks them.
class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (pos_ < in_.size()) {
      const bool at_group_start = group_start_;
      group_start_ = false;
      switch (in_[pos_]) {
        case '\\':
          escape(false);
          break;
        case '[':
          character_class();
          break;
        case '(':
          group(at_group_start);
          break;
        case '{':
          interval();
          break;
        default:
          out_.push_back(in_[pos_++]);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(ErrorCode::bad_input, std::string(where_),
                "pattern uses " + std::string(what) + ", which is not supported");
  }

  bool starts_with(std::string_view text) const { return in_.substr(pos_).starts_with(text); }

  void copy(size_t count) {
    out_.append(in_.substr(pos_, count));
    pos_ += count;
  }

  // (?m) of Oniguruma is "dot matches newline", which PCRE2 spells (?s).
  void group(bool at_group_start) {
    group_start_ = true;
    for (std::string_view opening : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (starts_with(opening)) {
        copy(opening.size());
        return;
      }
    }
    if (starts_with("(*")) {
      refuse("a verb");
    }
    if (!starts_with("(?")) {
      copy(1);
      return;
    }
    std::string flags = "(?";
    size_t p = pos_ + 2;
    for (; p < in_.size() && (in_[p] == 'i' || in_[p] == 'm' || in_[p] == '-'); ++p) {
      flags.push_back(in_[p] == 'm' ? 's' : in_[p]);
    }
    if (p == in_.size() || p == pos_ + 2 || (in_[p] != ':' && in_[p] != ')')) {
      refuse("the group '" + std::string(in_.substr(pos_, 4)) + "'");
    }
    if (in_[p] == ')' && !at_group_start) {
      refuse("an option setting in the middle of a group");
    }
    out_ += flags;
    out_.push_back(in_[p]);
    pos_ = p + 1;
  }

  // Reads {n}, {n,}, {,m} or {n,m}. Any other brace is a literal.
  void interval() {
    size_t p = pos_ + 1;
    const auto digits = [&] {
      const size_t begin = p;
      while (p < in_.size() && is_digit(in_[p])) {
        ++p;
      }
      return in_.substr(begin, p - begin);
    };
    const std::string_view low = digits();
    const bool comma = p < in_.size() && in_[p] == ',';
    p += comma ? 1 : 0;
    const std::string_view high = comma ? digits() : low;
    if (p == in_.size() || in_[p] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++pos_;
      return;
    }
    if (number_of(low) > kMostLeast || number_of(high) > kMost) {
      refuse("an interval beyond {" + std::to_string(kMostLeast) + "," + std::to_string(kMost) +
             "}");
    }
    const char after = p + 1 < in_.size() ? in_[p + 1] : '\0';
    if (after == '+' || (after == '?' && !comma)) {
      refuse("'" + std::string(1, after) + "' after an interval");
    }
    out_.append("{").append(low.empty() ? "0" : low);
    if (comma) {
      out_.append(",").append(high);
    }
    out_.append("}");
    pos_ = p + 1;
  }

  void character_class() {
    const size_t begin = out_.size();
    copy(1);
    const bool negated = starts_with("^");
    if (negated) ++pos_;
    if (starts_with("]")) {
      refuse("']' at the start of a class");
    }
    alternatives_.clear();
    while (pos_ < in_.size() && in_[pos_] != ']') {
      if (in_[pos_] == '[') {
        refuse("a nested class");
      }
      if (starts_with("&&")) {
        refuse("a class intersection");
      }
      if (in_[pos_] == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    if (pos_ == in_.size()) {
      refuse("a class without end");
    }
    copy(1);
    const std::string inside = out_.substr(begin + 1, out_.size() - begin - 2);
    out_.resize(begin);
    if (alternatives_.empty()) {
      out_.append(negated ? "[^" : "[").append(inside).append("]");
    } else {
      add_alternatives(inside, negated);
    }
  }

  // Writes a class together with sets that cannot be its members. The result is one character in
  // any of them, or in none.
  void add_alternatives(const std::string& inside, bool negated) {
    std::string any;
    if (!inside.empty()) any.append("[").append(inside).append("]");
    for (const std::string& one : alternatives_)
      any.append(any.empty() ? "" : "|").append(one);
    out_ += negated ? fmt::format("(?:(?!{})(?s:.))", any) : fmt::format("(?:{})", any);
  }

  // Writes a set that can be written as class members, inside or outside a class. A class has no
  // member for "in neither of two sets", so that becomes an alternative to the class.
  void members(std::string_view set, bool negated, bool in_class) {
    if (in_class && !negated) {
      out_ += set;
    } else {
      one_character(fmt::format("[{}{}]", negated ? "^" : "", set), in_class);
    }
  }
  void one_character(std::string expression, bool in_class) {
    if (in_class) {
      alternatives_.push_back(std::move(expression));
    } else {
      out_ += expression;
    }
  }

  void escape(bool in_class) {
    if (pos_ + 1 == in_.size()) {
      refuse("a backslash at the end");
    }
    const char c = in_[pos_ + 1];
    if (!is_alnum(c)) {
      // Every ASCII non-alphanumeric may be escaped; other characters need no escape.
      if (static_cast<unsigned char>(c) >= 0x80) {
        ++pos_;
        copy(1);
      } else {
        copy(2);
      }
      return;
    }
    if (c == 'p' || c == 'P') {
      property(in_class);
    } else if (c == 'x' || c == 'u') {
      code_point();
    } else {
      pos_ += 2;
      letter_escape(c, in_class);
    }
  }

  // Translates an escape of a letter. pos_ is past the letter already.
  void letter_escape(char c, bool in_class) {
    static constexpr std::string_view kHex = "0-9A-Fa-f";
    const bool upper = c >= 'A' && c <= 'Z';
    switch (c) {
      case 's':
      case 'S':
        out_ += upper ? "\\P{White_Space}" : "\\p{White_Space}";
        return;
      case 'd':
      case 'D':
        return property("Nd", "", upper, in_class);
      case 'w':
      case 'W':
        return members(in_class ? word_class() : oniguruma_word(), upper, in_class);
      case 'h':
      case 'H':
        return members(kHex, upper, in_class);
      case 'v':
        out_ += "\\x{0B}";
        return;
      case 'b':
        return boundary(in_class);
      default:
        break;
    }
    const std::string_view same = in_class ? "nrtfae" : "nrtfaeAzZ";
    if (same.find(c) == std::string_view::npos) {
      refuse("'\\" + std::string(1, c) + "'");
    }
    out_.push_back('\\');
    out_.push_back(c);
  }

  // Translates \b and \B, because PCRE2's own \b would use PCRE2's \w.
  void boundary(bool in_class) {
    if (in_class) {
      out_ += "\\x{08}";
      return;
    }
    const std::string word = "[" + oniguruma_word() + "]";
    out_ += "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
  }

  // Translates \p{Name}, \P{Name} and \p{^Name}, for general categories, a few binary properties
  // and scripts. PCRE2 would read a bare script name as Script_Extensions.
  void property(bool in_class) {
    const size_t end = in_.find('}', pos_);
    if (!in_.substr(pos_ + 2).starts_with("{") || end == std::string_view::npos) {
      refuse("'\\p' without braces");
    }
    std::string_view name = in_.substr(pos_ + 3, end - pos_ - 3);
    bool negated = in_[pos_ + 1] == 'P';
    if (name.starts_with("^")) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool plain =
        std::all_of(name.begin(), name.end(), [](char c) { return is_alnum(c) || c == '_'; });
    if (name.empty() || !plain) {
      refuse("a malformed property name");
    }
    const auto listed = [name](const auto& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    const bool script = !listed(kCategories) && !listed(kBinaryProperties);
    property(name, script ? "sc:" : "", negated, in_class);
    pos_ = end + 1;
  }

  void property(std::string_view name, std::string_view kind, bool negated, bool in_class) {
    const std::string newer = newer_members(name), older = older_members(name);
    const std::string own = fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', kind, name);
    if (!older.empty()) {
      if (negated) return members(own + older, false, in_class);
      return one_character(fmt::format("(?:(?![{}]){})", older, own), in_class);
    }
    if (newer.empty()) {
      out_ += own;
    } else {
      members(fmt::format("\\p{{{}{}}}{}", kind, name, newer), negated, in_class);
    }
  }

  // Translates \xH, \xHH (only of ASCII, because Oniguruma means raw bytes), \x{H...} and \uHHHH.
  void code_point() {
    const bool four = in_[pos_ + 1] == 'u';
    size_t p = pos_ + 2;
    const bool braces = !four && p < in_.size() && in_[p] == '{';
    p += braces ? 1 : 0;
    const size_t begin = p;
    const size_t limit = braces ? 8 : four ? 4 : 2;
    while (p < in_.size() && p - begin < limit && is_hex(in_[p])) {
      ++p;
    }
    const std::string digits(in_.substr(begin, p - begin));
    const bool closed = !braces || (p < in_.size() && in_[p] == '}');
    if (digits.empty() || !closed || (four && digits.size() != 4)) {
      refuse("a malformed character code");
    }
    if (!braces && !four && std::stoul(digits, nullptr, 16) >= 0x80) {
      refuse("a raw byte");
    }
    out_.append("\\x{").append(digits).append("}");
    pos_ = p + (braces ? 1 : 0);
  }

  std::string_view in_;
  std::string_view where_;
  size_t pos_ = 0;
  bool group_start_ = true;
  std::string out_;
  std::vector<std::string> alternatives_;  // they belong to the class that is being read
};

}  // namespace

const std::string& word_class() {
  static const std::string members = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" +
                                     newer_members("Alphabetic") + newer_members("M") +
                                     newer_members("Nd") + newer_members("Pc");
  return members;
}

std::string oniguruma_to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

Regex oniguruma_regex(std::string_view pattern, std::string_view where) {
  return Regex::for_text(oniguruma_to_pcre2(pattern, where), where);
}

}  // namespace walsh
