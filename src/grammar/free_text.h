// Allows unconstrained text up to a mark, after which the constrained part begins.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

// Allows any bytes, including ill-formed UTF-8 and special tokens, up to the first occurrence of
// one of several marks, which an Aho-Corasick automaton recognizes.
class FreeText {
 public:
  struct Mark {
    std::string text;  // it is not empty
    NodeId behind;     // the grammar continues here
  };

  // Adds the nodes. With `end`, the text may also end at any point and continue there.
  FreeText(GraphBuilder& builder, const std::vector<Mark>& marks, std::optional<NodeId> end);

  NodeId start() const { return nodes_.front(); }
  // Treats a byte at `from` that is not in `except` as the first byte of the text.
  void join(NodeId from, const std::bitset<256>& except);

 private:
  using Targets = std::array<NodeId, 256>;
  void add_bytes(NodeId from, const Targets& targets, const std::bitset<256>& except);

  GraphBuilder& builder_;
  // Each proper prefix of a mark has a node; the first belongs to the empty prefix.
  std::vector<NodeId> nodes_;
  std::vector<Targets> targets_;
};

}  // namespace walsh::grammar
