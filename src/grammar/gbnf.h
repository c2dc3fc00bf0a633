// Reads GBNF, the language of grammars that llama.cpp takes.
//
//   root  ::= "yes" | "no" | list      the rule that the whole text matches
//   list  ::= "[" [a-z]+ ("," [^"\n]{1,3})* "]"   # comment
//
// Literals and classes know \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; `.` is any character;
// repetitions are * + ? {n} {n,} {n,m}. A rule ends with its line, but not inside parentheses,
// not after ::= and |, and not where the next line begins with |.
#pragma once

#include <string_view>

#include "grammar/graph.h"

namespace walsh::grammar {

inline constexpr size_t kMaxGrammarBytes = size_t{1} << 20;

// Adds the rules of a grammar and returns the rule called root. Throws bad_input naming line and
// column, and limit for a grammar that is too large.
RuleId add_gbnf(GraphBuilder& builder, std::string_view text);

}  // namespace walsh::grammar
