#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "grammar/graph.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

// Long repetitions are made of blocks of kBlock if there are at least kLeastBlocks of them.
constexpr int64_t kBlock = 1024, kLeastBlocks = 4;

struct ByteRange {
  uint8_t first, last;
  auto operator<=>(const ByteRange&) const = default;
};
using ByteRanges = std::vector<ByteRange>;

// Adds the byte sequences of the UTF-8 of a range of code points, all of the same length.
void add_sequences(char32_t first, char32_t last, int size, std::vector<ByteRanges>& out) {
  std::string a, b;
  append_utf8(first, a);
  append_utf8(last, b);
  // If all later bytes are unrestricted, the ranges of the bytes form one sequence.
  for (int i = 1; i < size; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((first | low) == (last | low)) break;
    if ((first & low) != 0) {
      add_sequences(first, first | low, size, out);
      return add_sequences((first | low) + 1, last, size, out);
    }
    if ((last & low) != low) {
      add_sequences(first, (last & ~low) - 1, size, out);
      return add_sequences(last & ~low, last, size, out);
    }
  }
  ByteRanges sequence;
  for (size_t i = 0; i < a.size(); ++i)
    sequence.push_back({static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i])});
  out.push_back(std::move(sequence));
}

std::vector<ByteRanges> utf8_sequences(const CodeSet& set) {
  constexpr CodeRange kSizes[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}};
  std::vector<ByteRanges> result;
  for (int size = 1; size <= 4; ++size) {
    for (const CodeRange& range : common_part(set, {kSizes[size - 1]}))
      add_sequences(range.first, range.last, size, result);
  }
  return result;
}

}  // namespace

void GraphBuilder::too_large() const {
  throw Error(ErrorCode::limit, where_,
              fmt::format("needs more than {} states or {} transitions", kMaxNodes, kMaxEdges));
}

NodeId GraphBuilder::node() {
  if (graph_.nodes.size() >= kMaxNodes) too_large();
  graph_.nodes.emplace_back();
  return static_cast<NodeId>(graph_.nodes.size() - 1);
}

void GraphBuilder::edge() {
  if (++edges_ > kMaxEdges) too_large();
  budget_->spend(1, where_);
}

RuleId GraphBuilder::rule(std::string name) {
  Rule rule;
  rule.start = node();
  rule.end = node();
  rule.name = std::move(name);
  graph_.rules.push_back(std::move(rule));
  return static_cast<RuleId>(graph_.rules.size() - 1);
}

void GraphBuilder::byte(NodeId from, uint8_t first, uint8_t last, NodeId to) {
  edge();
  graph_.nodes[from].bytes.push_back({first, last, to});
}

void GraphBuilder::empty(NodeId from, NodeId to) {
  edge();
  graph_.nodes[from].empty.push_back(to);
}

void GraphBuilder::call(NodeId from, RuleId rule, NodeId to) {
  edge();
  graph_.nodes[from].calls.push_back({rule, to});
}

NodeId GraphBuilder::open_distinct(NodeId from) {
  const NodeId open = node();
  empty(from, open);
  graph_.opens_distinct.resize(graph_.nodes.size(), false);
  graph_.opens_distinct[open] = true;
  return text(open, "[");
}

NodeId GraphBuilder::text(NodeId from, std::string_view text) {
  for (const char c : text) {
    const NodeId next = node();
    byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    from = next;
  }
  return from;
}

NodeId GraphBuilder::call(NodeId from, RuleId rule) {
  const NodeId next = node();
  call(from, rule, next);
  return next;
}

NodeId GraphBuilder::one_of(NodeId from, const CodeSet& set) {
  const NodeId next = node();
  one_of(from, set, next);
  return next;
}

// Adds a character of a set. Byte sequences with equal suffixes share the nodes of the suffix.
void GraphBuilder::one_of(NodeId from, const CodeSet& set, NodeId to) {
  std::map<ByteRanges, NodeId> ends;
  for (const ByteRanges& sequence : utf8_sequences(set)) {
    NodeId target = to;
    for (size_t i = sequence.size() - 1; i > 0; --i) {
      const auto [place, added] = ends.try_emplace(
          ByteRanges(sequence.begin() + static_cast<std::ptrdiff_t>(i), sequence.end()), 0);
      if (added) {
        place->second = node();
        byte(place->second, sequence[i].first, sequence[i].last, target);
      }
      target = place->second;
    }
    byte(from, sequence[0].first, sequence[0].last, target);
  }
}

NodeId GraphBuilder::repeat(NodeId from, RuleId rule, int64_t least, int64_t most) {
  from = repeat_exactly(from, rule, least);
  if (most >= 0) return repeat_at_most(from, rule, most - least);
  const NodeId loop = node(), last = node();
  empty(from, loop);
  call(loop, rule, loop);
  empty(loop, last);
  return last;
}

GraphBuilder::Blocks GraphBuilder::blocks_of(RuleId rule) {
  if (const auto known = blocks_.find(rule); known != blocks_.end()) return known->second;
  const std::string name = graph_.rules[rule].name;
  const Blocks blocks{this->rule(name), this->rule(name)};
  blocks_[rule] = blocks;
  empty(repeat_exactly(start(blocks.full), rule, kBlock), end(blocks.full));
  empty(repeat_at_most(start(blocks.part), rule, kBlock - 1), end(blocks.part));
  return blocks;
}

NodeId GraphBuilder::repeat_exactly(NodeId from, RuleId rule, int64_t count) {
  if (count >= kLeastBlocks * kBlock) {
    const RuleId block = blocks_of(rule).full;
    for (; count >= kBlock; count -= kBlock)
      from = call(from, block);
  }
  for (; count > 0; --count)
    from = call(from, rule);
  return from;
}

NodeId GraphBuilder::repeat_at_most(NodeId from, RuleId rule, int64_t most) {
  const NodeId last = node();
  if (most >= kLeastBlocks * kBlock) {
    const auto [full, part] = blocks_of(rule);
    for (; most >= kBlock; most -= kBlock) {
      call(from, part, last);
      from = call(from, full);
    }
  }
  empty(from, last);
  for (; most > 0; --most) {
    from = call(from, rule);
    empty(from, last);
  }
  return last;
}

NodeId GraphBuilder::any_text(NodeId from, const std::vector<std::string>& texts) {
  const NodeId last = node();
  std::map<std::pair<NodeId, char>, NodeId> tree;  // texts with equal prefixes share nodes
  for (const std::string& one : texts) {
    NodeId at = from;
    for (const char c : one) {
      const auto [place, added] = tree.try_emplace({at, c}, 0);
      if (added) {
        place->second = node();
        byte(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), place->second);
      }
      at = place->second;
    }
    empty(at, last);
  }
  return last;
}

void GraphBuilder::byte_in_string(NodeId from, const ByteEdge& edge, NodeId to) {
  // The escapes are in the order of the bytes.
  constexpr std::pair<uint8_t, char> kEscapes[] = {
      {'\t', 't'}, {'\n', 'n'}, {'\r', 'r'}, {'"', '"'}, {'\\', '\\'}};
  int first = edge.first;  // this is the next byte that is not written yet
  for (const auto& [plain, letter] : kEscapes) {
    if (plain < first || plain > edge.last) continue;
    if (first < plain) byte(from, static_cast<uint8_t>(first), plain - 1, to);
    byte(text(from, "\\"), static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), to);
    first = plain + 1;
  }
  if (first <= edge.last) byte(from, static_cast<uint8_t>(first), edge.last, to);
}

NodeId GraphBuilder::in_string(NodeId from, const GraphBuilder& inner, RuleId root) {
  const auto nodes = static_cast<NodeId>(graph_.nodes.size());
  const auto rules = static_cast<RuleId>(graph_.rules.size());
  for (size_t i = 0; i < inner.graph_.nodes.size(); ++i)
    node();
  for (const Rule& rule : inner.graph_.rules) {
    graph_.rules.push_back(rule);
    graph_.rules.back().start += nodes;
    graph_.rules.back().end += nodes;
  }
  for (NodeId i = 0; i < inner.graph_.nodes.size(); ++i) {
    const Node& one = inner.graph_.nodes[i];
    for (const ByteEdge& edge : one.bytes)
      byte_in_string(nodes + i, edge, nodes + edge.target);
    for (const NodeId target : one.empty)
      empty(nodes + i, nodes + target);
    for (const CallEdge& edge : one.calls)
      call(nodes + i, rules + edge.rule, nodes + edge.back);
  }
  return call(from, rules + root);
}

// Builds the Knuth-Morris-Pratt automaton, which has one node for each prefix of the mark.
NodeId GraphBuilder::until(NodeId from, std::string_view mark) {
  std::u32string codes;
  for (std::string_view rest = mark; !rest.empty();) {
    const Utf8Unit unit = decode_utf8(rest);
    codes.push_back(unit.code);
    rest.remove_prefix(unit.size);
  }
  std::u32string letters = codes;
  std::sort(letters.begin(), letters.end());
  letters.erase(std::unique(letters.begin(), letters.end()), letters.end());
  CodeSet set;
  for (const char32_t code : letters)
    set.push_back({code, code});
  const CodeSet others = complement(normal_set(set));
  std::vector<NodeId> read = {node()};
  for (size_t i = 0; i < codes.size(); ++i)
    read.push_back(node());
  empty(from, read[0]);
  for (size_t i = 0; i < codes.size(); ++i) {
    one_of(read[i], others, read[0]);
    for (const char32_t code : letters) {
      const std::u32string text = codes.substr(0, i) + code;
      size_t size = std::min(text.size(), codes.size());
      while (text.compare(text.size() - size, size, codes, 0, size) != 0)
        --size;
      one_of(read[i], {{code, code}}, read[size]);
    }
  }
  return read.back();
}

}  // namespace walsh::grammar
