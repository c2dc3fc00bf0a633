// A grammar is one pushdown automaton over bytes, the common form of GBNF, JSON schemas and
// patterns.
//
// A rule is a graph from its start to its end. An edge consumes a byte, nothing, or what another
// rule matches; rules may be recursive, but not before something was consumed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/step_budget.h"

namespace walsh::grammar {

using NodeId = uint32_t;
using RuleId = uint32_t;

// Every grammar has these limits, so that none takes more than some milliseconds and megabytes to
// compile.
inline constexpr size_t kMaxNodes = 100'000;
inline constexpr size_t kMaxEdges = 400'000;
inline constexpr int kMaxDepth = 256;  // this many calls that have to return may be nested
// Building one grammar may take this many steps, some tenths of a second in all. A step copies or
// compares a member or a value, or makes or follows an edge.
inline constexpr uint64_t kMaxBuildSteps = 10'000'000;

// This byte precedes the text of a special token. UTF-8 never contains it, so only a grammar that
// asks for the token matches it.
inline constexpr char kSpecialMark = '\xFF';

struct ByteEdge {
  uint8_t first, last;  // both are included
  NodeId target;
};

struct CallEdge {
  RuleId rule;
  NodeId back;  // the automaton continues here after the rule
};

struct Node {
  std::vector<ByteEdge> bytes;
  std::vector<NodeId> empty;
  std::vector<CallEdge> calls;
};

struct Rule {
  NodeId start = 0, end = 0;  // no edge leaves the end
  std::string name;           // messages name the rule by this
  bool empty = false;         // it matches the empty text, perhaps among others
};

// A graph is immutable and made by GraphBuilder::finish().
struct Graph {
  std::vector<Node> nodes;
  std::vector<Rule> rules;
  RuleId root = 0;
  std::vector<uint32_t> rank;  // a node is above those that reach it without consuming
  std::vector<int> depth;      // this many calls are nested on the way from a node to its end
  std::vector<bool> is_end;    // the node is the end of its rule
  // Tells, per node, whether its '[' begins a list whose items must differ (DistinctItems). It is
  // empty if no node does.
  std::vector<bool> opens_distinct;
  std::array<uint8_t, 256> classes{};  // bytes that no edge distinguishes share a class
  std::vector<uint8_t> class_bytes;    // it has one byte of each class
};

// Holds the code points from `first` to `last`.
struct CodeRange {
  char32_t first, last;
};
// A set is sorted and disjoint, without surrogates.
using CodeSet = std::vector<CodeRange>;

CodeSet normal_set(CodeSet ranges);
CodeSet complement(const CodeSet& set);
// Returns the intersection of two sets.
CodeSet common_part(const CodeSet& a, const CodeSet& b);

// Makes a graph. Every function throws limit where one of the limits above would be exceeded.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string where)
      : where_(std::move(where)), budget_(std::make_shared<StepBudget>(kMaxBuildSteps)) {}
  // Builds an auxiliary graph for another one, from whose budget its work is taken.
  GraphBuilder(std::string where, const GraphBuilder& other)
      : where_(std::move(where)), budget_(other.budget_) {}

  NodeId node();
  RuleId rule(std::string name);
  NodeId start(RuleId rule) const { return graph_.rules[rule].start; }
  NodeId end(RuleId rule) const { return graph_.rules[rule].end; }

  void byte(NodeId from, uint8_t first, uint8_t last, NodeId to);
  void empty(NodeId from, NodeId to);
  void call(NodeId from, RuleId rule, NodeId to);
  // Adds a node whose '[' begins a list whose items must differ, and returns the node after it.
  NodeId open_distinct(NodeId from);

  // These add a path from `from` and return its last node.
  NodeId text(NodeId from, std::string_view text);
  NodeId call(NodeId from, RuleId rule);
  NodeId one_of(NodeId from, const CodeSet& set);  // it matches one character, as UTF-8
  // Adds between `least` and `most` repetitions of `rule`; a negative `most` means no upper bound.
  // Large numbers are counted in blocks, which take a node each.
  NodeId repeat(NodeId from, RuleId rule, int64_t least, int64_t most);
  // Adds one of several texts.
  NodeId any_text(NodeId from, const std::vector<std::string>& texts);
  // Adds any UTF-8 up to and including the first occurrence of `mark`.
  NodeId until(NodeId from, std::string_view mark);

  // Adds the texts that `root` of another builder matches, as they are written inside of a JSON
  // string.
  NodeId in_string(NodeId from, const GraphBuilder& inner, RuleId root);

  void one_of(NodeId from, const CodeSet& set, NodeId to);

  // Returns whether a list was opened whose items must differ.
  bool has_distinct_lists() const { return !graph_.opens_distinct.empty(); }

  const std::string& where() const { return where_; }
  void set_where(std::string where) { where_ = std::move(where); }
  // Returns the remaining budget, for work that others do for this grammar.
  StepBudget& budget() const { return *budget_; }

  // Throws bad_input if the grammar matches nothing or a rule calls itself before something was
  // consumed, and limit if every match needs more than kMaxDepth nested calls. The builder is used
  // up by it.
  Graph finish(RuleId root);

 private:
  void edge();
  [[noreturn]] void too_large() const;
  void byte_in_string(NodeId from, const ByteEdge& edge, NodeId to);
  NodeId repeat_exactly(NodeId from, RuleId rule, int64_t count);
  NodeId repeat_at_most(NodeId from, RuleId rule, int64_t most);
  // These rules match a block of repetitions of `rule`, and any smaller number of them.
  struct Blocks {
    RuleId full, part;
  };
  Blocks blocks_of(RuleId rule);

  std::string where_;
  std::shared_ptr<StepBudget> budget_;
  Graph graph_;
  size_t edges_ = 0;
  std::map<RuleId, Blocks> blocks_;
};

}  // namespace walsh::grammar
