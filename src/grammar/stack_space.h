// Makes the states of a grammar's automaton when they are first reached. The state after a text is
// the set of all ways in which the grammar can have read it.
//
// A way is a node and a stack of nodes to return to. A set of ways contains each node once, with
// the set of all stacks below it, which is a set of the same kind. Sets are interned, so equal
// states have equal numbers, and what was computed for a state is found again. That keeps ambiguous
// grammars polynomial (the graph-structured stack of Tomita 1986).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

using StateId = uint32_t;

class StackSpace {
 public:
  static constexpr StateId kDead = 0;  // this is the empty set

  // `graph` must outlive this.
  explicit StackSpace(const Graph& graph, std::string where);

  StateId start();
  // Returns the state after one more byte. Throws limit when spend() does.
  StateId next(StateId state, uint8_t byte) {
    const uint32_t row = rows_[state];
    const size_t place = size_t{row} * classes_ + graph_.classes[byte];
    if (row != kNoRow && table_[place] != kUnknown) return table_[place];
    return compute_next(state, graph_.classes[byte]);
  }
  // Returns whether the text may end here.
  bool complete(StateId state) const { return sets_[state].bottom; }
  // Returns whether any text may follow.
  bool can_continue(StateId state) const { return sets_[state].count > 0; }
  // Returns the state after one printable character other than a quote and a backslash, if it is
  // the same for all of them, else kDiffers.
  static constexpr StateId kDiffers = 0xFFFFFFFE;
  StateId next_plain(StateId state);

  // Returns whether '[' may begin a list whose items have to differ.
  bool opens_distinct(StateId state) const;

  // Returns the same state of another space of the same graph.
  StateId import(const StackSpace& other, StateId state);

  size_t bytes() const { return bytes_; }
  // Sets the budget of the following calls; exceeding it throws limit.
  void allow(uint64_t steps) { steps_left_ = steps; }
  uint64_t steps_left() const { return steps_left_; }
  void spend(uint64_t steps) {
    if (steps > steps_left_) out_of_steps();
    steps_left_ -= steps;
  }

 private:
  static constexpr uint32_t kNoRow = 0xFFFFFFFF, kUnknown = 0xFFFFFFFF;
  static constexpr StateId kBottom = 1;  // this is the empty stack

  struct Frame {
    NodeId node;
    StateId below;
    bool operator==(const Frame&) const = default;
  };
  struct Set {
    uint32_t first = 0, count = 0;  // the frames lie in frames_
    bool bottom = false;            // the set contains the empty stack
    int depth = 0;                  // The deepest stack has this many entries.
  };

  [[noreturn]] void out_of_steps() const;
  std::span<const Frame> frames(StateId set) const {
    return {frames_.data() + sets_[set].first, sets_[set].count};
  }
  StateId intern(std::vector<Frame>& frames, bool bottom);
  StateId unite(StateId a, StateId b);
  StateId compute_next(StateId state, uint8_t byte_class);
  StateId closure(std::vector<Frame>& seeds);
  bool read_ends(std::vector<Frame>& found);
  void enter(NodeId node, StateId below);
  StateId uniform(StateId state, std::span<const std::pair<uint8_t, uint8_t>> bytes);

  const Graph& graph_;
  const std::string where_;
  const size_t classes_;
  std::vector<Set> sets_;
  std::vector<Frame> frames_;
  std::unordered_multimap<uint64_t, StateId> interned_;  // the keys are hashes
  std::unordered_map<uint64_t, StateId> united_;
  std::vector<uint32_t> rows_;  // each state has its row in table_
  std::vector<StateId> table_;  // a row has the next state for every class of bytes
  std::vector<StateId> plain_;  // each row has its next_plain()
  size_t bytes_ = 0;
  uint64_t steps_left_ = 0;

  // The closure that is being computed uses this memory.
  std::vector<StateId> below_;                        // each node has the stacks below it
  std::vector<NodeId> entered_;                       // these nodes have a set in below_
  std::vector<std::pair<uint32_t, NodeId>> waiting_;  // this is a heap by rank
};

}  // namespace walsh::grammar
