#include "grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>

#include "io/printable.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr int kMaxParentheses = 200;
constexpr int64_t kMaxRepetitions = 1'000'000;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(GraphBuilder& builder, std::string_view text) : builder_(builder), text_(text) {}

  RuleId parse() {
    skip(true);
    while (at_ < text_.size()) {
      parse_rule();
      skip(true);
    }
    for (const auto& [name, known] : rules_)
      if (!known.defined) fail_at(known.place, fmt::format("there is no rule '{}'", name));
    const auto root = rules_.find("root");
    if (root == rules_.end()) fail("there is no rule 'root'");
    return root->second.rule;
  }

 private:
  struct Known {
    RuleId rule = 0;
    bool defined = false;
    size_t place = 0;  // the name was first used here
  };

  [[noreturn]] void fail_at(size_t place, const std::string& reason) const {
    const std::string_view before = text_.substr(0, place);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t column = place - (before.rfind('\n') + 1) + 1;
    throw Error(ErrorCode::bad_input, builder_.where(),
                fmt::format("line {}, column {}: {}", line, column, reason));
  }
  [[noreturn]] void fail(const std::string& reason) const { fail_at(at_, reason); }
  [[noreturn]] void fail_expected(const char* what) const {
    const std::string found =
        at_ < text_.size() ? "'" + printable(text_.substr(at_, 1), 8) + "'" : "the end";
    fail(fmt::format("expected {}, found {}", what, found));
  }

  bool has(std::string_view token) const { return text_.substr(at_).starts_with(token); }
  bool take(std::string_view token) {
    if (!has(token)) return false;
    at_ += token.size();
    return true;
  }

  // Skips spaces and comments, and line ends where they do not end a rule.
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n')
          ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_]))
      ++at_;
    if (at_ == begin) fail_expected("the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Known& known(const std::string& name, size_t place) {
    const auto [it, added] = rules_.try_emplace(name);
    if (added) it->second = {builder_.rule(name), false, place};
    return it->second;
  }

  void parse_rule() {
    const size_t place = at_;
    const std::string title = name();
    Known& rule = known(title, place);
    if (rule.defined) fail_at(place, fmt::format("rule '{}' is there already", title));
    rule.defined = true;
    skip(false);
    if (!take("::=")) fail_expected("::=");
    skip(true);
    const RuleId id = rule.rule;
    alternatives(builder_.start(id), builder_.end(id), title, 0);
    skip(false);
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
      fail_expected("the end of the rule");
  }

  void alternatives(NodeId from, NodeId to, const std::string& rule, int depth) {
    if (depth > kMaxParentheses) fail("parentheses are nested too deeply");
    do {
      skip(true);
      builder_.empty(sequence(from, rule, depth), to);
    } while (next_alternative(depth));
  }

  // Returns whether another alternative follows, possibly on the next line, which begins with |.
  bool next_alternative(int depth) {
    const size_t place = at_;
    skip(true);
    if (take("|")) return true;
    if (depth == 0) at_ = place;
    return false;
  }

  NodeId sequence(NodeId from, const std::string& rule, int depth) {
    // Each alternative begins with a node of its own, so that its loops do not lead into others.
    NodeId at = builder_.node();
    builder_.empty(from, at);
    for (;;) {
      skip(depth > 0);
      if (at_ >= text_.size()) return at;
      const char c = text_[at_];
      if (c == '|' || c == ')' || c == '\n' || c == '\r') return at;
      at = item(at, rule, depth);
    }
  }

  // A symbol is a rule's name, a literal, a class or a group in parentheses.
  struct Symbol {
    std::optional<RuleId> rule;
    std::string text;
    CodeSet set;
  };

  // Adds a symbol that is not a rule at `from`.
  NodeId add(NodeId from, const Symbol& symbol) {
    return symbol.set.empty() ? builder_.text(from, symbol.text)
                              : builder_.one_of(from, symbol.set);
  }

  // Reads one symbol with its repetition. A literal is one symbol, as in llama.cpp: "ab"* repeats
  // both letters.
  NodeId item(NodeId from, const std::string& rule, int depth) {
    const Symbol one = symbol(rule, depth);
    const size_t behind = at_;
    skip(depth > 0);
    const size_t place = at_;
    const auto [least, most] = repetition();
    if (at_ == place) at_ = behind;
    if (least == 1 && most == 1) return one.rule ? builder_.call(from, *one.rule) : add(from, one);
    RuleId body = 0;
    if (one.rule) {
      body = *one.rule;
    } else {
      body = builder_.rule(rule);
      builder_.empty(add(builder_.start(body), one), builder_.end(body));
    }
    return builder_.repeat(from, body, least, most);
  }

  Symbol symbol(const std::string& rule, int depth) {
    const size_t place = at_;
    if (is_name(text_[at_])) return {known(name(), place).rule, "", {}};
    if (take("(")) {
      const RuleId body = builder_.rule(rule);
      alternatives(builder_.start(body), builder_.end(body), rule, depth + 1);
      if (!take(")")) fail_expected(")");
      return {body, "", {}};
    }
    if (take("\"")) return {std::nullopt, literal(), {}};
    if (take("[")) return {std::nullopt, "", char_class()};
    if (take(".")) return {std::nullopt, "", complement({})};
    fail_expected("a literal, a class, a name or '('");
  }

  std::pair<int64_t, int64_t> repetition() {
    if (take("*")) return {0, -1};
    if (take("+")) return {1, -1};
    if (take("?")) return {0, 1};
    if (!take("{")) return {1, 1};
    skip(true);
    const std::optional<int64_t> least = number();
    skip(true);
    std::optional<int64_t> most = least;
    if (take(",")) {
      skip(true);
      most = number();
      skip(true);
    } else if (!least) {
      fail_expected("a number");
    }
    if (!take("}")) fail_expected("}");
    if (most && *most < least.value_or(0))
      fail("the upper bound of the repetitions is below the lower bound");
    return {least.value_or(0), most.value_or(-1)};
  }

  std::optional<int64_t> number() {
    if (at_ >= text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0)
      return std::nullopt;
    int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > kMaxRepetitions) fail(fmt::format("more than {} repetitions", kMaxRepetitions));
    }
    return value;
  }

  char32_t hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0)
        fail_expected(fmt::format("{} hexadecimal digits", digits).c_str());
      const int value = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      code = code << 4 | static_cast<char32_t>(value);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) fail("this is not a character");
    return code;
  }

  // Reads one character of a literal or a class.
  char32_t character() {
    if (at_ >= text_.size() || text_[at_] == '\n') fail_expected("a character");
    if (take("\\")) {
      if (take("n")) return '\n';
      if (take("r")) return '\r';
      if (take("t")) return '\t';
      if (take("x")) return hex(2);
      if (take("u")) return hex(4);
      if (take("U")) return hex(8);
      for (const char* same : {"\\", "\"", "[", "]"})
        if (take(same)) return static_cast<char32_t>(*same);
      fail_expected("one of n r t x u U \\ \" [ ] after a backslash");
    }
    const Utf8Unit unit = decode_utf8(text_.substr(at_));
    if (unit.kind != Utf8Unit::Kind::valid) fail("this is not UTF-8");
    at_ += unit.size;
    return unit.code;
  }

  std::string literal() {
    std::string text;
    while (!take("\""))
      append_utf8(character(), text);
    return text;
  }

  CodeSet char_class() {
    const bool negated = take("^");
    CodeSet set;
    while (!take("]")) {
      const char32_t first = character();
      char32_t last = first;
      if (has("-") && !has("-]")) {
        ++at_;
        last = character();
      }
      if (last < first) fail("the range ends before it begins");
      set.push_back({first, last});
    }
    set = normal_set(std::move(set));
    if (negated) set = complement(set);
    if (set.empty()) fail("an empty class matches nothing");
    return set;
  }

  GraphBuilder& builder_;
  const std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, Known> rules_;
};

}  // namespace

RuleId add_gbnf(GraphBuilder& builder, std::string_view text) {
  if (text.size() > kMaxGrammarBytes) {
    throw Error(
        ErrorCode::limit, builder.where(),
        fmt::format("it has {} bytes, but at most {} are allowed", text.size(), kMaxGrammarBytes));
  }
  return Parser(builder, text).parse();
}

}  // namespace walsh::grammar
