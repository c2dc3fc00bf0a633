// Automata over characters as sets of texts. Every function throws limit, naming `where`, if an
// automaton becomes too large or the budget is spent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/pattern_automaton.h"

namespace walsh::grammar {

struct SetScope {
  const std::string& where;
  StepBudget& budget;
};

// Texts that both have; places keep their conditions.
PatternAutomaton texts_of_both(const PatternAutomaton& a, const PatternAutomaton& b,
                               const SetScope& scope);
// A text of `a`, then one of `b`.
PatternAutomaton in_sequence(PatternAutomaton a, const PatternAutomaton& b);
PatternAutomaton one_of_all(const std::vector<PatternAutomaton>& choices);
// All texts that it does not have; without conditions.
PatternAutomaton other_texts(const PatternAutomaton& a, const SetScope& scope);
PatternAutomaton these_texts(const std::vector<std::string>& texts);
// Any number of characters of a set.
PatternAutomaton any_number_of(const CodeSet& set);

// The same texts without conditions. Where the automaton does not begin (end) where the whole text
// does, what asks for the character in front of it (behind it) is bad_input.
PatternAutomaton without_conditions(const PatternAutomaton& a, bool begins, bool ends,
                                    const SetScope& scope);

bool has_text(const PatternAutomaton& a, std::string_view text);
bool is_empty(const PatternAutomaton& a);

}  // namespace walsh::grammar
