// Text that nothing is asked of, until a mark in it begins what has to match.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

// Any bytes, also such that are no UTF-8 and special tokens, up to the first place where one of
// some marks stands; the automaton of Aho and Corasick.
class FreeText {
 public:
  struct Mark {
    std::string text;  // not empty
    NodeId behind;     // where it goes on
  };

  // Adds the nodes. With `end`, the text may also end there at every place.
  FreeText(GraphBuilder& builder, const std::vector<Mark>& marks, std::optional<NodeId> end);

  NodeId start() const { return nodes_.front(); }
  // A byte from `from` that is none of `except` is read as the first one of the text.
  void join(NodeId from, const std::bitset<256>& except);

 private:
  using Targets = std::array<NodeId, 256>;
  void add_bytes(NodeId from, const Targets& targets, const std::bitset<256>& except);

  GraphBuilder& builder_;
  std::vector<NodeId> nodes_;  // per beginning of a mark; the first one of none
  std::vector<Targets> targets_;
};

}  // namespace walsh::grammar
