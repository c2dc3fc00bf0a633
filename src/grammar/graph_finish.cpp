// Checks a complete graph and computes its properties.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "grammar/graph.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// Says which nodes to look at again when a node or a rule has changed.
struct Users {
  std::vector<std::vector<NodeId>> of_node, of_rule;  // they list the nodes with an edge to it

  explicit Users(const Graph& graph) : of_node(graph.nodes.size()), of_rule(graph.rules.size()) {
    for (NodeId from = 0; from < graph.nodes.size(); ++from) {
      const Node& node = graph.nodes[from];
      for (const ByteEdge& edge : node.bytes)
        of_node[edge.target].push_back(from);
      for (const NodeId to : node.empty)
        of_node[to].push_back(from);
      for (const CallEdge& edge : node.calls) {
        of_node[edge.back].push_back(from);
        of_rule[edge.rule].push_back(from);
      }
    }
  }
};

// Returns for each node the rule that starts there, or -1.
std::vector<int64_t> rules_of_starts(const Graph& graph) {
  std::vector<int64_t> rules(graph.nodes.size(), -1);
  for (RuleId rule = 0; rule < graph.rules.size(); ++rule)
    rules[graph.rules[rule].start] = rule;
  return rules;
}

// Returns the least fixed point of value(node), which is the minimum over the node's edges and 0 at
// ends. `value_of(node, value)` computes it from the present values, which only decrease.
template <typename ValueOf>
std::vector<int> least_values(const Graph& graph, const Users& users, ValueOf value_of) {
  std::vector<int> value(graph.nodes.size(), kNever);
  std::vector<NodeId> changed;
  for (const Rule& rule : graph.rules) {
    value[rule.end] = 0;
    changed.push_back(rule.end);
  }
  const std::vector<int64_t> rule_of = rules_of_starts(graph);
  while (!changed.empty()) {
    const NodeId node = changed.back();
    changed.pop_back();
    const auto look = [&](NodeId user) {
      const int now = value_of(user, value);
      if (now >= value[user]) return;
      value[user] = now;
      changed.push_back(user);
    };
    for (const NodeId user : users.of_node[node])
      look(user);
    if (rule_of[node] < 0) continue;
    for (const NodeId user : users.of_rule[static_cast<size_t>(rule_of[node])])
      look(user);
  }
  return value;
}

// Returns how many calls are nested on the way from a node to its end; a call that returns to an
// end adds none.
std::vector<int> depths(const Graph& graph, const Users& users) {
  return least_values(graph, users, [&](NodeId id, const std::vector<int>& value) {
    const Node& node = graph.nodes[id];
    int least = kNever;
    for (const ByteEdge& edge : node.bytes)
      least = std::min(least, value[edge.target]);
    for (const NodeId to : node.empty)
      least = std::min(least, value[to]);
    for (const CallEdge& edge : node.calls) {
      const int inside = value[graph.rules[edge.rule].start], back = value[edge.back];
      if (inside == kNever || back == kNever) continue;
      least = std::min(least, std::max(back, inside + (graph.is_end[edge.back] ? 0 : 1)));
    }
    return least;
  });
}

// Returns 0 for nodes that can reach their end without consuming anything.
std::vector<int> empties(const Graph& graph, const Users& users) {
  return least_values(graph, users, [&](NodeId id, const std::vector<int>& value) {
    const Node& node = graph.nodes[id];
    for (const NodeId to : node.empty)
      if (value[to] == 0) return 0;
    for (const CallEdge& edge : node.calls)
      if (value[graph.rules[edge.rule].start] == 0 && value[edge.back] == 0) return 0;
    return kNever;
  });
}

// Removes edges on which no text can be completed.
void remove_dead_edges(Graph& graph) {
  const auto dead = [&](NodeId node) { return graph.depth[node] == kNever; };
  for (Node& node : graph.nodes) {
    std::erase_if(node.bytes, [&](const ByteEdge& edge) { return dead(edge.target); });
    std::erase_if(node.empty, dead);
    std::erase_if(node.calls, [&](const CallEdge& edge) {
      return dead(edge.back) || dead(graph.rules[edge.rule].start);
    });
  }
}

// Finds the strongly connected components (Tarjan) of the edges that consume nothing.
class Components {
 public:
  explicit Components(Graph& graph) : graph_(graph), order_(graph.nodes.size(), 0) {
    graph.rank.assign(graph.nodes.size(), 0);
    component_.assign(graph.nodes.size(), 0);
    for (NodeId node = 0; node < graph.nodes.size(); ++node)
      if (order_[node] == 0) visit(node);
    // Components are complete in the reverse order of their edges.
    for (uint32_t& rank : graph.rank)
      rank = static_cast<uint32_t>(graph.nodes.size()) - rank;
  }
  bool together(NodeId a, NodeId b) const { return component_[a] == component_[b]; }

 private:
  struct Place {
    NodeId node;
    size_t next;  // this successor comes next
  };

  // Sets `to` to successor `index` of a node. Returns false if there is none.
  bool successor(NodeId id, size_t index, NodeId& to) const {
    const Node& node = graph_.nodes[id];
    if (index < node.empty.size()) {
      to = node.empty[index];
      return true;
    }
    index -= node.empty.size();
    if (index >= 2 * node.calls.size()) return false;
    const CallEdge& edge = node.calls[index / 2];
    const Rule& rule = graph_.rules[edge.rule];
    to = index % 2 == 0 || !rule.empty ? rule.start : edge.back;
    return true;
  }

  void visit(NodeId root) {
    std::vector<Place> path;
    const auto enter = [&](NodeId node) {
      order_[node] = ++count_;
      index_.push_back(node);
      path.push_back({node, 0});
    };
    std::vector<uint32_t> low;
    enter(root);
    low.push_back(order_[root]);
    while (!path.empty()) {
      Place& place = path.back();
      NodeId to = 0;
      if (successor(place.node, place.next++, to)) {
        if (order_[to] == 0) {
          enter(to);
          low.push_back(order_[to]);
        } else if (component_[to] == 0) {
          low.back() = std::min(low.back(), order_[to]);
        }
        continue;
      }
      const NodeId node = place.node;
      const uint32_t least = low.back();
      path.pop_back();
      low.pop_back();
      if (!low.empty()) low.back() = std::min(low.back(), least);
      if (least == order_[node]) complete(node);
    }
  }

  void complete(NodeId root) {
    ++components_;
    for (NodeId node = root + 1; node != root;) {
      node = index_.back();
      index_.pop_back();
      component_[node] = components_;
      graph_.rank[node] = ++ranked_;
    }
  }

  Graph& graph_;
  std::vector<uint32_t> order_, component_;
  std::vector<NodeId> index_;  // their component is not complete
  uint32_t count_ = 0, components_ = 0, ranked_ = 0;
};

void check_left_recursion(const Graph& graph, const Components& components,
                          const std::string& where) {
  for (NodeId from = 0; from < graph.nodes.size(); ++from) {
    for (const CallEdge& edge : graph.nodes[from].calls) {
      const Rule& rule = graph.rules[edge.rule];
      if (!components.together(from, rule.start)) continue;
      throw Error(ErrorCode::bad_input, where,
                  fmt::format("rule '{}' is left-recursive: it begins with itself", rule.name));
    }
  }
}

// Lets edges to nodes that only forward lead to the target directly, so that a call at the end of a
// rule is recognized as one.
void shorten_edges(Graph& graph) {
  std::vector<NodeId> target(graph.nodes.size());
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    target[id] = id;
    for (int steps = 0; steps < 16; ++steps) {
      const Node& node = graph.nodes[target[id]];
      if (node.empty.size() != 1 || !node.bytes.empty() || !node.calls.empty()) break;
      target[id] = node.empty[0];
    }
  }
  for (Node& node : graph.nodes) {
    for (ByteEdge& edge : node.bytes)
      edge.target = target[edge.target];
    for (NodeId& to : node.empty)
      to = target[to];
    for (CallEdge& edge : node.calls)
      edge.back = target[edge.back];
  }
}

void set_classes(Graph& graph) {
  std::array<bool, 257> cut{};
  cut[0] = true;
  for (const Node& node : graph.nodes) {
    for (const ByteEdge& edge : node.bytes) {
      cut[edge.first] = true;
      cut[edge.last + 1u] = true;
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (cut[byte]) graph.class_bytes.push_back(static_cast<uint8_t>(byte));
    graph.classes[byte] = static_cast<uint8_t>(graph.class_bytes.size() - 1);
  }
}

}  // namespace

Graph GraphBuilder::finish(RuleId root) {
  Graph graph = std::move(graph_);
  graph.root = root;
  budget_->spend(graph.nodes.size() + 4 * edges_, where_);
  shorten_edges(graph);
  if (!graph.opens_distinct.empty()) graph.opens_distinct.resize(graph.nodes.size(), false);
  graph.is_end.assign(graph.nodes.size(), false);
  for (const Rule& rule : graph.rules)
    graph.is_end[rule.end] = true;
  const Users users(graph);
  graph.depth = depths(graph, users);
  const std::vector<int> empty = empties(graph, users);
  for (Rule& rule : graph.rules)
    rule.empty = empty[rule.start] == 0;
  const Rule& first = graph.rules[root];
  const int depth = graph.depth[first.start];
  if (depth == kNever)
    throw Error(ErrorCode::bad_input, where_, "no finite text matches '" + first.name + "'");
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::limit, where_,
                fmt::format("every text needs {} nested rules, but at most {} are supported", depth,
                            kMaxDepth));
  }
  remove_dead_edges(graph);
  const Components components(graph);
  check_left_recursion(graph, components, where_);
  set_classes(graph);
  return graph;
}

}  // namespace walsh::grammar
