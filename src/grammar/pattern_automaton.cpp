#include "grammar/pattern_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <optional>

#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMaxStates = 20'000;
constexpr int kMaxGroups = 100;  // inside each other
constexpr int64_t kMaxRepetitions = 10'000;

const CodeSet& digits() {
  static const CodeSet set = {{'0', '9'}};
  return set;
}
const CodeSet& word() {
  static const CodeSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
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
// What negated classes of JSON strings are taken from.
const CodeSet& printable_codes() {
  static const CodeSet set = complement({{0, 0x1F}, {0x7F, 0x9F}});
  return set;
}

// A part of a pattern.
struct Part {
  enum class Kind : uint8_t { set, sequence, choice, repeat } kind = Kind::sequence;
  CodeSet set;
  std::vector<Part> parts;
  int64_t least = 1, most = 1;  // most < 0: any number
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& where, PatternUse use)
      : text_(text), where_(where), whole_(use == PatternUse::text) {}

  Part parse() {
    Part all{Part::Kind::choice, {}, {}, 1, 1};
    do {
      Part one;
      if (!take("^") && !whole_) one.parts.push_back(anything());
      while (at_ < text_.size() && !has("|") && !has("$"))
        one.parts.push_back(repeated(0));
      if (!take("$") && !whole_) one.parts.push_back(anything());
      all.parts.push_back(std::move(one));
    } while (take("|"));
    if (at_ < text_.size()) fail("'$' is supported at the end of an alternative only");
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
    return whole_ ? complement(set) : common_part(complement(set), printable_codes());
  }
  static Part anything() {
    Part any{Part::Kind::set, printable_codes(), {}, 1, 1};
    return {Part::Kind::repeat, {}, {std::move(any)}, 0, -1};
  }

  Part choice(int depth) {
    Part all{Part::Kind::choice, {}, {}, 1, 1};
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
    while (const auto range = repetition()) {
      take("?");  // lazy: the same texts
      if (has("+")) fail("possessive repetition is not supported");
      part = {Part::Kind::repeat, {}, {std::move(part)}, range->first, range->second};
    }
    return part;
  }

  std::optional<std::pair<int64_t, int64_t>> repetition() {
    if (take("*")) return std::pair<int64_t, int64_t>(0, -1);
    if (take("+")) return std::pair<int64_t, int64_t>(1, -1);
    if (take("?")) return std::pair<int64_t, int64_t>(0, 1);
    if (!take("{")) return std::nullopt;
    const auto least = number();
    if (!least) fail("expected a number of repetitions");
    std::optional<int64_t> most = least;
    if (take(",")) most = has("}") ? -1 : number();
    if (!most || !take("}")) fail("expected {n}, {n,} or {n,m}");
    if (*most >= 0 && *most < *least) fail("the most repetitions are fewer than the least");
    return std::pair(*least, *most);
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
    if (take("(")) {
      if (depth >= kMaxGroups) fail("too many groups inside each other");
      if (take("?")) group_kind();
      Part inside = choice(depth + 1);
      if (!take(")")) fail("a group does not end");
      return inside;
    }
    Part one{Part::Kind::set, {}, {}, 1, 1};
    if (take("[")) {
      one.set = char_class();
    } else if (take(".")) {
      one.set = others({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
    } else {
      for (const char* special : {"^", "$", "*", "+", "?", "{", ")"})
        if (has(special)) fail(fmt::format("'{}' is not supported here", special));
      one.set = character_or_class();
    }
    return one;
  }

  void group_kind() {
    if (take(":")) return;
    if (!has("<=") && !has("<!") && take("<")) {
      const size_t end = text_.find('>', at_);
      if (end == text_.npos) fail("the name of a group does not end");
      at_ = end + 1;
      return;
    }
    fail("look-ahead and look-behind are not supported");
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

  // What stands for one character or, behind a backslash, for several.
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
        return spaces();
      case 'S':
        return others(spaces());
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
      if (count == 6) fail("this is no character");
      code = code << 4 | hex(1);
    }
    if (code > 0x10FFFF) fail("this is no character");
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
          fail("this is no range of characters");
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
  const bool whole_;  // a whole text, of any characters
  size_t at_ = 0;
};

class Maker {
 public:
  Maker(PatternAutomaton& automaton, const std::string& where)
      : automaton_(automaton), where_(where) {}

  uint32_t state() {
    if (automaton_.states.size() >= kMaxStates) too_large();
    automaton_.states.emplace_back();
    return static_cast<uint32_t>(automaton_.states.size() - 1);
  }

  // The state behind `part`. Parts that need no states are counted too: they may be repeated.
  uint32_t add(const Part& part, uint32_t from) {
    if (++parts_ > 10 * kMaxStates) too_large();
    switch (part.kind) {
      case Part::Kind::set: {
        const uint32_t to = state();
        automaton_.states[from].edges.push_back({part.set, to});
        return to;
      }
      case Part::Kind::sequence:
        for (const Part& one : part.parts)
          from = add(one, from);
        return from;
      case Part::Kind::choice: {
        const uint32_t to = state();
        for (const Part& one : part.parts) {
          const uint32_t begin = state();
          empty(from, begin);
          empty(add(one, begin), to);
        }
        return to;
      }
      case Part::Kind::repeat:
        return add_repeat(part, from);
    }
    return from;
  }

 private:
  [[noreturn]] void too_large() const {
    throw Error(ErrorCode::limit, where_,
                fmt::format("the pattern needs more than {} states", kMaxStates));
  }
  void empty(uint32_t from, uint32_t to) { automaton_.states[from].empty.push_back(to); }

  uint32_t add_repeat(const Part& part, uint32_t from) {
    for (int64_t i = 0; i < part.least; ++i)
      from = add(part.parts[0], from);
    const uint32_t to = state();
    if (part.most < 0) {
      const uint32_t loop = state();
      empty(from, loop);
      empty(add(part.parts[0], loop), loop);
      empty(loop, to);
      return to;
    }
    empty(from, to);
    for (int64_t i = part.least; i < part.most; ++i) {
      from = add(part.parts[0], from);
      empty(from, to);
    }
    return to;
  }

  PatternAutomaton& automaton_;
  const std::string& where_;
  size_t parts_ = 0;
};

}  // namespace

PatternAutomaton parse_pattern(std::string_view pattern, const std::string& where, PatternUse use) {
  const Part all = Parser(pattern, where, use).parse();
  PatternAutomaton automaton;
  Maker maker(automaton, where);
  automaton.last = maker.add(all, maker.state());
  return automaton;
}

void add_pattern_text(GraphBuilder& builder, const PatternAutomaton& pattern, NodeId from,
                      NodeId to) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < pattern.states.size(); ++i)
    nodes.push_back(builder.node());
  builder.empty(from, nodes.front());
  builder.empty(nodes[pattern.last], to);
  for (size_t i = 0; i < pattern.states.size(); ++i) {
    for (const uint32_t next : pattern.states[i].empty)
      builder.empty(nodes[i], nodes[next]);
    for (const PatternAutomaton::Edge& edge : pattern.states[i].edges)
      builder.one_of(nodes[i], edge.set, nodes[edge.target]);
  }
}

namespace {

// Whether every text that matches has so many characters anyhow, so that none need be counted.
bool has_length(const PatternAutomaton& pattern, int64_t least, int64_t most) {
  if (least > 0) return false;
  if (most < 0) return true;
  // The longest way, in topological order; there is none where states lead back to themselves.
  std::vector<size_t> before(pattern.states.size(), 0);
  for (const auto& state : pattern.states) {
    for (const uint32_t next : state.empty)
      ++before[next];
    for (const auto& edge : state.edges)
      ++before[edge.target];
  }
  std::vector<int64_t> length(pattern.states.size(), 0);
  std::vector<uint32_t> ready;
  for (uint32_t state = 0; state < before.size(); ++state)
    if (before[state] == 0) ready.push_back(state);
  for (size_t i = 0; i < ready.size(); ++i) {
    const auto& state = pattern.states[ready[i]];
    const auto reach = [&](uint32_t next, int64_t characters) {
      length[next] = std::max(length[next], characters);
      if (--before[next] == 0) ready.push_back(next);
    };
    const int64_t characters = length[ready[i]];
    for (const uint32_t next : state.empty)
      reach(next, characters);
    for (const auto& edge : state.edges)
      reach(edge.target, characters + 1);
  }
  return ready.size() == pattern.states.size() && length[pattern.last] <= most;
}

// The product of the automaton and a counter of characters, which stops counting where it no longer
// matters. `add(node, set, next)` makes an edge for one character of a set. False if the end is
// never reached.
template <typename Add>
bool add_product(GraphBuilder& builder, const PatternAutomaton& pattern, int64_t least,
                 int64_t most, NodeId from, NodeId to, Add add) {
  if (has_length(pattern, least, most)) least = 0, most = -1;
  using Key = std::pair<uint32_t, int64_t>;
  std::map<Key, NodeId> nodes;
  std::vector<Key> waiting;
  bool reached = false;
  const auto node_of = [&](uint32_t state, int64_t count) {
    if (most < 0) count = std::min(count, least);
    const auto [place, added] = nodes.try_emplace({state, count}, 0);
    if (added) {
      place->second = builder.node();
      waiting.emplace_back(state, count);
    }
    return place->second;
  };
  builder.empty(from, node_of(0, 0));
  while (!waiting.empty()) {
    const auto [state, count] = waiting.back();
    waiting.pop_back();
    const NodeId node = nodes.at({state, count});
    for (const uint32_t next : pattern.states[state].empty)
      builder.empty(node, node_of(next, count));
    if (state == pattern.last && count >= least) {
      builder.empty(node, to);
      reached = true;
    }
    if (most >= 0 && count == most) continue;
    for (const PatternAutomaton::Edge& edge : pattern.states[state].edges)
      add(node, edge.set,
          [&, target = edge.target, next = count + 1] { return node_of(target, next); });
  }
  return reached;
}

}  // namespace

bool add_counted_pattern(GraphBuilder& builder, const PatternAutomaton& pattern,
                         const CodeSet& letters, int64_t least, int64_t most, NodeId from,
                         NodeId to) {
  return add_product(builder, pattern, least, most, from, to,
                     [&](NodeId node, const CodeSet& set, const auto& next) {
                       const CodeSet some = common_part(set, letters);
                       if (!some.empty()) builder.one_of(node, some, next());
                     });
}

void add_pattern_string(GraphBuilder& builder, JsonRules& json, const PatternAutomaton& pattern,
                        int64_t least, int64_t most, NodeId from, NodeId to) {
  const NodeId end = builder.node();
  add_product(
      builder, pattern, least, most, builder.text(from, "\""), end,
      [&](NodeId node, const CodeSet& set, const auto& next) { json.one_of(node, set, next()); });
  builder.byte(end, '"', '"', to);
}

}  // namespace walsh::grammar
