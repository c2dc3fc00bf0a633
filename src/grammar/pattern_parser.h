// The text of a regular expression (ECMA-262) as a tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

// What the pattern is of: the value of a JSON string, of which it may be any part; the same with
// all characters in negated classes, which tells exactly what matches; or a whole text.
enum class PatternUse : uint8_t { json_string, exact, text };

// Of a place between two characters.
enum class Assertion : uint8_t { begin, end, word_edge, no_word_edge };

// A part of a pattern.
struct Part {
  enum class Kind : uint8_t { set, sequence, choice, repeat, assertion, look };
  Kind kind = Kind::sequence;
  CodeSet set = {};
  std::vector<Part> parts = {};
  int64_t least = 1, most = 1;  // of a repetition; most < 0: any number
  Assertion assertion = Assertion::begin;
  bool behind = false, negative = false;  // of a look-around
};

// A choice of sequences. Throws bad_input, with `where` as its place, for what is no pattern or
// needs more than a regular language (back-references).
Part parse_parts(std::string_view pattern, const std::string& where, PatternUse use);

// The characters of \w.
const CodeSet& word();
// What negated classes of JSON strings are taken from.
const CodeSet& printable_codes();

}  // namespace walsh::grammar
