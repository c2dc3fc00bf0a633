// Regular expressions (ECMA-262, as the "pattern" of JSON schemas) as automata over characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/graph.h"
#include "grammar/json_rules.h"
#include "grammar/pattern_parser.h"

namespace walsh::grammar {

// State 0 is the first one.
struct PatternAutomaton {
  struct Edge {
    CodeSet set;
    uint32_t target;
  };
  // Consumes nothing; holds in some places only.
  struct Condition {
    Assertion assertion;
    uint32_t target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> empty;
    std::vector<Condition> conditions;  // none in what parse_pattern gives
  };
  std::vector<State> states;
  uint32_t last = 0;
};

// Literals, classes, \d \w \s and their complements, groups, alternatives, repetitions (lazy ones
// as well), ^ $ \b \B, and look-around in the outermost alternatives. In JSON strings a pattern may
// stand anywhere, and negated classes and the dot mean no control characters. Throws bad_input for
// what is no such pattern or needs more than a regular language (back-references) and limit for
// what is too large; the error's place is `where`, the work is taken from `budget`.
PatternAutomaton parse_pattern(std::string_view pattern, const std::string& where,
                               StepBudget& budget, PatternUse use = PatternUse::json_string);

// Texts that match, as they are.
void add_pattern_text(GraphBuilder& builder, const PatternAutomaton& pattern, NodeId from,
                      NodeId to);

// The same with `least` to `most` characters (most < 0: any number), all of them of `letters`.
// False if there is no such text; nothing is added to `to` then.
bool add_counted_pattern(GraphBuilder& builder, const PatternAutomaton& pattern,
                         const CodeSet& letters, int64_t least, int64_t most, NodeId from,
                         NodeId to);

// Strings that match and have `least` to `most` characters (most < 0: any number), written between
// quotes without needless backslashes.
void add_pattern_string(GraphBuilder& builder, JsonRules& json, const PatternAutomaton& pattern,
                        int64_t least, int64_t most, NodeId from, NodeId to);

}  // namespace walsh::grammar
