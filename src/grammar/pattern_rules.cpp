// Adds patterns to a grammar as rules.
#include <algorithm>
#include <map>

#include "grammar/pattern_automaton.h"

namespace walsh::grammar {

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

// Returns whether every match has an allowed length anyway, so that no counting is needed.
bool has_length(const PatternAutomaton& pattern, int64_t least, int64_t most) {
  if (least > 0) return false;
  if (most < 0) return true;
  // The longest path is found in topological order; there is none if states form a cycle.
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

// Builds the product of the automaton and a counter of characters, which stops where counting no
// longer matters. `add(node, set, next)` makes an edge for one character of a set. Returns false if
// the end is never reached.
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
