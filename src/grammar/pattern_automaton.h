// The regular expressions of JSON schemas ("pattern": ECMA-262) as automata over characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/graph.h"
#include "grammar/json_rules.h"

namespace walsh::grammar {

// State 0 is the first one.
struct PatternAutomaton {
  struct Edge {
    CodeSet set;
    uint32_t target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> empty;
  };
  std::vector<State> states;
  uint32_t last = 0;
};

// Literals, classes, \d \w \s and their complements, groups, alternatives, repetitions (lazy ones
// as well), ^ and $ at the ends of the outermost alternatives; elsewhere the pattern may stand
// anywhere in the text. Negated classes and the dot mean no control characters here. Throws
// bad_input for what is no such pattern or needs more than a regular language (look-around,
// back-references) and limit for what is too large; the error's place is `where`.
PatternAutomaton parse_pattern(std::string_view pattern, const std::string& where);

// Strings that match and have `least` to `most` characters (most < 0: any number), written between
// quotes without needless backslashes.
void add_pattern_string(GraphBuilder& builder, JsonRules& json, const PatternAutomaton& pattern,
                        int64_t least, int64_t most, NodeId from, NodeId to);

}  // namespace walsh::grammar
