// A grammar as one pushdown automaton over bytes: what grammars of all languages become.
//
// A rule is a graph from its start to its end. An edge consumes a byte, nothing, or what another
// rule matches; rules may call themselves, but not before something was consumed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/step_budget.h"

namespace walsh::grammar {

using NodeId = uint32_t;
using RuleId = uint32_t;

// Bounds of every grammar, so that none takes more than some milliseconds and megabytes to compile.
inline constexpr size_t kMaxNodes = 100'000;
inline constexpr size_t kMaxEdges = 400'000;
inline constexpr int kMaxDepth = 256;  // calls that have to be returned from
// Of everything that is done for one grammar before it is there, some tenths of a second in all:
// members and values that are copied or compared, edges that are made or followed.
inline constexpr uint64_t kMaxBuildSteps = 10'000'000;

// In front of the text of a special token: no UTF-8 has this byte, so that only what asks for the
// token matches it.
inline constexpr char kSpecialMark = '\xFF';

struct ByteEdge {
  uint8_t first, last;  // both included
  NodeId target;
};

struct CallEdge {
  RuleId rule;
  NodeId back;  // where it goes on behind what the rule matches
};

struct Node {
  std::vector<ByteEdge> bytes;
  std::vector<NodeId> empty;
  std::vector<CallEdge> calls;
};

struct Rule {
  NodeId start = 0, end = 0;  // no edge leaves the end
  std::string name;           // for messages
  bool empty = false;         // matches the empty text
};

// Immutable. Made by GraphBuilder::finish().
struct Graph {
  std::vector<Node> nodes;
  std::vector<Rule> rules;
  RuleId root = 0;
  std::vector<uint32_t> rank;  // of a node: behind those that reach it without consuming
  std::vector<int> depth;      // of a node: calls inside each other on the way to its end
  std::vector<bool> is_end;    // of a node: whether its rule ends there
  // Of a node: whether a list whose items have to differ begins with its '[' (DistinctItems); empty
  // where there is none.
  std::vector<bool> opens_distinct;
  std::array<uint8_t, 256> classes{};  // bytes that no edge tells apart have one class
  std::vector<uint8_t> class_bytes;    // a byte of each class
};

// Code points from `first` to `last`.
struct CodeRange {
  char32_t first, last;
};
// In order and apart from each other; without surrogates.
using CodeSet = std::vector<CodeRange>;

CodeSet normal_set(CodeSet ranges);
CodeSet complement(const CodeSet& set);
// What both have.
CodeSet common_part(const CodeSet& a, const CodeSet& b);

// Every function throws limit where a bound would be exceeded.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string where)
      : where_(std::move(where)), budget_(std::make_shared<StepBudget>(kMaxBuildSteps)) {}
  // A graph that is needed to make another one: its work counts as the other's.
  GraphBuilder(std::string where, const GraphBuilder& other)
      : where_(std::move(where)), budget_(other.budget_) {}

  NodeId node();
  RuleId rule(std::string name);
  NodeId start(RuleId rule) const { return graph_.rules[rule].start; }
  NodeId end(RuleId rule) const { return graph_.rules[rule].end; }

  void byte(NodeId from, uint8_t first, uint8_t last, NodeId to);
  void empty(NodeId from, NodeId to);
  void call(NodeId from, RuleId rule, NodeId to);
  // The way behind '[' from a new node, with which a list whose items have to differ begins.
  NodeId open_distinct(NodeId from);

  // These add a path behind `from` and return its last node.
  NodeId text(NodeId from, std::string_view text);
  NodeId call(NodeId from, RuleId rule);
  NodeId one_of(NodeId from, const CodeSet& set);  // one character, as UTF-8
  // `rule` from `least` to `most` times; most < 0: any number.
  NodeId repeat(NodeId from, RuleId rule, int64_t least, int64_t most);
  // One of some texts.
  NodeId any_text(NodeId from, const std::vector<std::string>& texts);
  // Any UTF-8 up to the first place where `mark` stands, and the mark.
  NodeId until(NodeId from, std::string_view mark);

  void one_of(NodeId from, const CodeSet& set, NodeId to);

  const std::string& where() const { return where_; }
  void set_where(std::string where) { where_ = std::move(where); }
  // What may still be done for it, and is to be counted by whoever does it.
  StepBudget& budget() const { return *budget_; }

  // Throws bad_input if nothing is matched, or a rule calls itself before something was consumed;
  // limit if every match needs more than kMaxDepth calls. The builder is used up.
  Graph finish(RuleId root);

 private:
  void edge();
  [[noreturn]] void too_large() const;

  std::string where_;
  std::shared_ptr<StepBudget> budget_;
  Graph graph_;
  size_t edges_ = 0;
};

}  // namespace walsh::grammar
