#include "grammar/json_rules.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace walsh::grammar {
namespace {

constexpr int64_t kMostIndent = 20;

// Returns the characters that need no escape in strings.
const CodeSet& raw_characters() {
  static const CodeSet set = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return set;
}

// Returns the shortest escape of a character that needs one.
std::string escaped(char32_t code) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
  }
}

NodeId hex_digits(GraphBuilder& builder, NodeId from, int count) {
  for (int i = 0; i < count; ++i)
    from = builder.one_of(from, {{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  return from;
}

}  // namespace

std::string json_letters(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    if (unit.code < 0x20 || unit.code == '"' || unit.code == '\\') {
      result += escaped(unit.code);
    } else {
      result += text.substr(0, unit.size);
    }
    text.remove_prefix(unit.size);
  }
  return result;
}

template <typename Body>
RuleId JsonRules::once(std::optional<RuleId>& known, const char* name, Body body) {
  if (!known) {
    known = builder_.rule(name);
    body(builder_.start(*known), builder_.end(*known));
  }
  return *known;
}

RuleId JsonRules::space() {
  return once(space_, "space", [&](NodeId from, NodeId to) {
    builder_.empty(from, to);
    builder_.byte(from, ' ', ' ', to);
    NodeId at = builder_.text(from, "\n");
    for (int64_t i = 0; i < kMostIndent; ++i) {
      builder_.empty(at, to);
      at = builder_.one_of(at, {{'\t', '\t'}, {' ', ' '}});
    }
    builder_.empty(at, to);
  });
}

NodeId JsonRules::spaced(NodeId from, const char* text) {
  return builder_.call(builder_.text(from, text), space());
}

RuleId JsonRules::character() {
  return once(character_, "character", [&](NodeId from, NodeId to) {
    builder_.one_of(from, raw_characters(), to);
    const NodeId slash = builder_.text(from, "\\");
    for (const char c : std::string("\"\\/bfnrt"))
      builder_.byte(slash, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    const NodeId code = builder_.text(slash, "u");
    const NodeId other =
        builder_.one_of(code, {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}});
    builder_.empty(hex_digits(builder_, other, 3), to);
    // Surrogates are characters only in pairs.
    const NodeId d = builder_.one_of(code, {{'D', 'D'}, {'d', 'd'}});
    builder_.empty(hex_digits(builder_, builder_.one_of(d, {{'0', '7'}}), 2), to);
    const NodeId high = builder_.one_of(d, {{'8', '9'}, {'A', 'B'}, {'a', 'b'}});
    NodeId low = builder_.text(hex_digits(builder_, high, 2), "\\u");
    low = builder_.one_of(builder_.one_of(low, {{'D', 'D'}, {'d', 'd'}}), {{'C', 'F'}, {'c', 'f'}});
    builder_.empty(hex_digits(builder_, low, 2), to);
  });
}

RuleId JsonRules::letter() {
  return once(letter_, "letter", [&](NodeId from, NodeId to) { one_of(from, complement({}), to); });
}

// Makes the rule of strings. Its loop reads plain characters itself, so that they lead back to the
// same state directly.
RuleId JsonRules::string() {
  return once(string_, "string", [&](NodeId from, NodeId to) {
    const NodeId inside = builder_.text(from, "\"");
    builder_.one_of(inside, raw_characters(), inside);
    const NodeId slash = builder_.node();
    builder_.byte(inside, '\\', '\\', slash);
    for (const char c : std::string("\"\\/bfnrt"))
      builder_.byte(slash, static_cast<uint8_t>(c), static_cast<uint8_t>(c), inside);
    const NodeId code = builder_.text(slash, "u");
    const CodeSet first = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    builder_.empty(hex_digits(builder_, builder_.one_of(code, first), 3), inside);
    builder_.byte(inside, '"', '"', to);
  });
}

RuleId JsonRules::number() {
  return once(number_, "number", [&](NodeId from, NodeId to) {
    const RuleId digit = builder_.rule("digit");
    builder_.byte(builder_.start(digit), '0', '9', builder_.end(digit));
    const NodeId sign = builder_.node(), whole = builder_.node(), part = builder_.node();
    builder_.empty(from, sign);
    builder_.byte(from, '-', '-', sign);
    builder_.byte(sign, '0', '0', whole);
    builder_.empty(builder_.repeat(builder_.one_of(sign, {{'1', '9'}}), digit, 0, 15), whole);
    builder_.empty(whole, part);
    builder_.empty(builder_.repeat(builder_.text(whole, "."), digit, 1, 16), part);
    builder_.empty(part, to);
    const NodeId power = builder_.one_of(part, {{'E', 'E'}, {'e', 'e'}}), digits = builder_.node();
    builder_.empty(power, digits);
    builder_.empty(builder_.one_of(power, {{'+', '+'}, {'-', '-'}}), digits);
    builder_.empty(builder_.repeat(digits, digit, 1, 2), to);
  });
}

// Adds the content of brackets, which is empty or has members separated by commas.
void JsonRules::members(NodeId from, NodeId to, RuleId member) {
  const NodeId first = builder_.call(from, space()), behind = builder_.node();
  builder_.empty(first, to);
  builder_.call(first, member, behind);
  builder_.call(spaced(behind, ","), member, behind);
  builder_.call(behind, space(), to);
}

RuleId JsonRules::object() {
  return once(object_, "object", [&](NodeId from, NodeId to) {
    const RuleId member = builder_.rule("member");
    const NodeId key = builder_.call(builder_.start(member), string());
    builder_.call(spaced(key, ":"), value(), builder_.end(member));
    const NodeId close = builder_.node();
    members(builder_.text(from, "{"), close, member);
    builder_.byte(close, '}', '}', to);
  });
}

RuleId JsonRules::array() {
  return once(array_, "array", [&](NodeId from, NodeId to) {
    const NodeId close = builder_.node();
    members(builder_.text(from, "["), close, value());
    builder_.byte(close, ']', ']', to);
  });
}

RuleId JsonRules::value() {
  return once(value_, "value", [&](NodeId from, NodeId to) {
    for (const RuleId rule : {object(), array(), string(), number()})
      builder_.call(from, rule, to);
    builder_.empty(builder_.any_text(from, {"true", "false", "null"}), to);
  });
}

void JsonRules::one_of(NodeId from, const CodeSet& set, NodeId to) {
  const CodeSet raw = common_part(set, raw_characters());
  if (!raw.empty() && raw.back().last < 0x80) {
    builder_.one_of(from, raw, to);
  } else if (!raw.empty()) {
    std::string key;
    for (const CodeRange& range : raw)
      key += fmt::format("{}-{} ", static_cast<uint32_t>(range.first),
                         static_cast<uint32_t>(range.last));
    const auto [place, added] = sets_.try_emplace(key, 0);
    if (added) {
      place->second = builder_.rule("characters");
      builder_.one_of(builder_.start(place->second), raw, builder_.end(place->second));
    }
    builder_.call(from, place->second, to);
  }
  const CodeSet others = common_part(set, complement(raw_characters()));
  std::vector<std::string> texts;
  for (const CodeRange& range : others)
    for (char32_t code = range.first; code <= range.last; ++code)
      texts.push_back(escaped(code));
  if (!texts.empty()) builder_.empty(builder_.any_text(from, texts), to);
}

// Builds a tree of the escaped names; whatever leaves the tree is a different string.
NodeId JsonRules::other_string(NodeId from, const std::vector<std::string>& names) {
  const NodeId last = builder_.node();
  const RuleId rest = builder_.rule("letters");  // it is the part after leaving the tree
  const NodeId more = builder_.start(rest);
  const auto add_letters = [&](NodeId at, const std::string& raw_known,
                               const std::string& escaped_known, NodeId slash, NodeId to) {
    CodeSet known = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    for (std::string_view text = raw_known; !text.empty();) {
      const Utf8Unit unit = decode_utf8(text);
      known.push_back({unit.code, unit.code});
      text.remove_prefix(unit.size);
    }
    builder_.one_of(at, complement(normal_set(known)), to);
    for (const char c : std::string("\"\\bfnrt"))
      if (escaped_known.find(c) == std::string::npos)
        builder_.byte(slash, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  };
  const NodeId more_slash = builder_.text(more, "\\");
  add_letters(more, "", "", more_slash, more);
  builder_.byte(more, '"', '"', builder_.end(rest));

  // The tree has every prefix of a name, with the letters that may follow it.
  std::map<std::string, std::pair<std::map<std::string, std::string>, bool>> tree;
  tree[""];
  for (const std::string& name : names) {
    std::string begin;
    for (std::string_view text = name; !text.empty();) {
      const std::string letter(text.substr(0, decode_utf8(text).size));
      tree[begin].first.emplace(letter, begin + letter);
      begin += letter;
      text.remove_prefix(letter.size());
    }
    tree[begin].second = true;
  }
  std::map<std::string, NodeId> nodes;
  for (const auto& [begin, entry] : tree)
    nodes[begin] = builder_.node();
  builder_.empty(builder_.text(from, "\""), nodes[""]);
  const NodeId left = builder_.node();
  builder_.call(left, rest, last);
  for (const auto& [begin, entry] : tree) {
    const NodeId at = nodes[begin], slash = builder_.text(at, "\\");
    std::string raw_known, escaped_known;
    for (const auto& [letter, next] : entry.first) {
      const std::string written = json_letters(letter);
      builder_.empty(builder_.text(at, written), nodes[next]);
      if (written.size() == 2 && written[0] == '\\') {
        escaped_known += written[1];
      } else if (written[0] != '\\') {
        raw_known += letter;
      }
    }
    add_letters(at, raw_known, escaped_known, slash, left);
    if (!entry.second) builder_.byte(at, '"', '"', last);
  }
  return last;
}

}  // namespace walsh::grammar
