// Turns regular expressions (ECMA-262, as in "pattern" of JSON schemas) into automata over
// characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/graph.h"
#include "grammar/json_rules.h"
#include "grammar/pattern_parser.h"

namespace walsh::grammar {

// Reads texts character by character; state 0 is the start.
struct PatternAutomaton {
  struct Edge {
    CodeSet set;
    uint32_t target;
  };
  // This edge consumes nothing and can be taken only where an assertion holds.
  struct Condition {
    Assertion assertion;
    uint32_t target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> empty;
    std::vector<Condition> conditions;  // it is empty after parse_pattern
  };
  std::vector<State> states;
  uint32_t last = 0;
};

// Parses a pattern. It supports literals, classes, \d \w \s and their complements, groups,
// alternatives, repetitions (lazy ones too), ^ $ \b \B, and look-around in the outermost
// alternatives. In JSON strings a pattern may match anywhere in the value, and negated classes and
// the dot exclude control characters. Throws bad_input for a malformed pattern or one that is not
// regular (back-references), limit for one that is too large; `where` is the place in errors, and
// the work is taken from `budget`.
PatternAutomaton parse_pattern(std::string_view pattern, const std::string& where,
                               StepBudget& budget, PatternUse use = PatternUse::json_string);

// Adds the texts that match the pattern, without quotes.
void add_pattern_text(GraphBuilder& builder, const PatternAutomaton& pattern, NodeId from,
                      NodeId to);

// Does the same for texts of `least` to `most` characters, all of them in `letters`. A negative
// `most` means no upper bound. Returns false, without an edge to `to`, if there is no such text.
bool add_counted_pattern(GraphBuilder& builder, const PatternAutomaton& pattern,
                         const CodeSet& letters, int64_t least, int64_t most, NodeId from,
                         NodeId to);

// Adds the strings that match and have `least` to `most` characters, as they are written between
// quotes without needless backslashes. A negative `most` means no upper bound.
void add_pattern_string(GraphBuilder& builder, JsonRules& json, const PatternAutomaton& pattern,
                        int64_t least, int64_t most, NodeId from, NodeId to);

}  // namespace walsh::grammar
