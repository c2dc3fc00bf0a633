// Parses a regular expression (ECMA-262) into a tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

// Says what the pattern is matched against. json_string means any part of the value of a JSON
// string. `exact` means the same with negated classes that include control characters, so that the
// set is exact. `text` means a whole text.
enum class PatternUse : uint8_t { json_string, exact, text };

// An assertion is a condition on the position between two characters.
enum class Assertion : uint8_t { begin, end, word_edge, no_word_edge };

// A part is a node of the tree.
struct Part {
  enum class Kind : uint8_t { set, sequence, choice, repeat, assertion, look };
  Kind kind = Kind::sequence;
  CodeSet set = {};
  std::vector<Part> parts = {};
  int64_t least = 1, most = 1;  // it is repeated this often; most < 0 means no upper bound
  Assertion assertion = Assertion::begin;
  bool behind = false, negative = false;  // a look-around may be a look-behind, and may be negated
};

// Parses a pattern to a choice of sequences. Throws bad_input, with `where` as its place, for a
// malformed pattern or one that is not regular (because it has back-references).
Part parse_parts(std::string_view pattern, const std::string& where, PatternUse use);

// Returns the characters of \w.
const CodeSet& word();
// Returns the characters that negated classes in JSON strings may contain.
const CodeSet& printable_codes();

}  // namespace walsh::grammar
