// Computes with automata over characters as sets of texts. Every function throws limit, naming
// `where`, if an automaton becomes too large or the budget is spent.
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

// Returns the automaton of the texts that both match. Conditions stay where they are.
PatternAutomaton texts_of_both(const PatternAutomaton& a, const PatternAutomaton& b,
                               const SetScope& scope);
// Returns the concatenation, which matches a text of `a` followed by one of `b`.
PatternAutomaton in_sequence(PatternAutomaton a, const PatternAutomaton& b);
PatternAutomaton one_of_all(const std::vector<PatternAutomaton>& choices);
// Returns the automaton of all texts that `a` does not match; it has no conditions.
PatternAutomaton other_texts(const PatternAutomaton& a, const SetScope& scope);
PatternAutomaton these_texts(const std::vector<std::string>& texts);
// Returns the automaton of any number of characters of a set.
PatternAutomaton any_number_of(const CodeSet& set);

// Returns the same set of texts without conditions. `begins` and `ends` tell whether the automaton
// starts and ends where the whole text does. If it does not, a condition on the character before or
// after it throws bad_input.
PatternAutomaton without_conditions(const PatternAutomaton& a, bool begins, bool ends,
                                    const SetScope& scope);

bool has_text(const PatternAutomaton& a, std::string_view text);
bool is_empty(const PatternAutomaton& a);

}  // namespace walsh::grammar
