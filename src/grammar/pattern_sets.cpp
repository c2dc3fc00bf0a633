#include "grammar/pattern_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMaxStates = 20'000;

uint32_t add_state(PatternAutomaton& a, const std::string& where) {
  if (a.states.size() >= kMaxStates) {
    throw Error(ErrorCode::limit, where,
                fmt::format("the pattern needs more than {} states", kMaxStates));
  }
  a.states.emplace_back();
  return static_cast<uint32_t>(a.states.size() - 1);
}

// Appends a copy of `part` to `all` and returns the number of its first state.
uint32_t append_states(PatternAutomaton& all, const PatternAutomaton& part) {
  const auto shift = static_cast<uint32_t>(all.states.size());
  for (PatternAutomaton::State state : part.states) {
    for (auto& edge : state.edges)
      edge.target += shift;
    for (uint32_t& next : state.empty)
      next += shift;
    for (auto& condition : state.conditions)
      condition.target += shift;
    all.states.push_back(std::move(state));
  }
  return shift;
}

// Numbers the states of a new automaton by their keys, and lists those still to be expanded.
template <typename Key>
class Numbers {
 public:
  Numbers(PatternAutomaton& automaton, const SetScope& scope)
      : automaton_(automaton), scope_(scope) {}

  uint32_t of(const Key& key) {
    const auto [place, added] = known_.try_emplace(key, 0);
    if (added) {
      place->second = add_state(automaton_, scope_.where);
      waiting_.push_back(key);
    }
    scope_.budget.spend(1, scope_.where);
    return place->second;
  }
  bool next(Key& key) {
    if (waiting_.empty()) return false;
    key = waiting_.back();
    waiting_.pop_back();
    return true;
  }

 private:
  PatternAutomaton& automaton_;
  const SetScope& scope_;
  std::map<Key, uint32_t> known_;
  std::vector<Key> waiting_;
};

// Removes states from which no end can be reached.
PatternAutomaton useful_part(const PatternAutomaton& a) {
  std::vector<std::vector<uint32_t>> before(a.states.size());
  for (uint32_t from = 0; from < a.states.size(); ++from) {
    for (const auto& edge : a.states[from].edges)
      before[edge.target].push_back(from);
    for (const uint32_t next : a.states[from].empty)
      before[next].push_back(from);
    for (const auto& condition : a.states[from].conditions)
      before[condition.target].push_back(from);
  }
  std::vector<bool> useful(a.states.size(), false);
  std::vector<uint32_t> list = {a.last};
  useful[a.last] = true;
  for (size_t i = 0; i < list.size(); ++i)
    for (const uint32_t from : before[list[i]])
      if (!useful[from]) {
        useful[from] = true;
        list.push_back(from);
      }
  useful[0] = true;
  std::vector<uint32_t> number(a.states.size(), 0);
  PatternAutomaton result;
  for (uint32_t i = 0; i < a.states.size(); ++i) {
    if (!useful[i]) continue;
    number[i] = static_cast<uint32_t>(result.states.size());
    result.states.emplace_back();
  }
  for (uint32_t i = 0; i < a.states.size(); ++i) {
    if (!useful[i]) continue;
    auto& state = result.states[number[i]];
    for (const auto& edge : a.states[i].edges)
      if (useful[edge.target]) state.edges.push_back({edge.set, number[edge.target]});
    for (const uint32_t next : a.states[i].empty)
      if (useful[next]) state.empty.push_back(number[next]);
    for (const auto& condition : a.states[i].conditions)
      if (useful[condition.target])
        state.conditions.push_back({condition.assertion, number[condition.target]});
  }
  result.last = number[a.last];
  return result;
}

void add_closure(const PatternAutomaton& a, std::set<uint32_t>& states) {
  std::vector<uint32_t> list(states.begin(), states.end());
  for (size_t i = 0; i < list.size(); ++i)
    for (const uint32_t next : a.states[list[i]].empty)
      if (states.insert(next).second) list.push_back(next);
}

// Partitions the characters so that no edge of these states distinguishes characters of one part,
// and returns the targets with their parts.
std::map<std::set<uint32_t>, CodeSet> moves(const PatternAutomaton& a,
                                            const std::set<uint32_t>& states,
                                            const SetScope& scope) {
  // Each place where ranges begin or end has their targets, and tells which of them begin there.
  std::map<char32_t, std::vector<std::pair<uint32_t, bool>>> cuts;
  cuts[0];
  for (const uint32_t state : states) {
    for (const auto& edge : a.states[state].edges) {
      scope.budget.spend(1 + edge.set.size(), scope.where);
      for (const CodeRange& range : edge.set) {
        cuts[range.first].emplace_back(edge.target, true);
        cuts[range.last + 1].emplace_back(edge.target, false);
      }
    }
  }
  std::map<std::set<uint32_t>, CodeSet> result;
  std::map<uint32_t, int> active;
  for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
    for (const auto& [target, begins] : cut->second) {
      int& count = active[target];
      count += begins ? 1 : -1;
      if (count == 0) active.erase(target);
    }
    const auto next = std::next(cut);
    const char32_t last = next == cuts.end() ? 0x10FFFF : next->first - 1;
    if (cut->first > last) continue;
    std::set<uint32_t> targets;
    for (const auto& [target, count] : active)
      targets.insert(target);
    scope.budget.spend(1 + targets.size(), scope.where);
    result[targets].push_back({cut->first, last});
  }
  for (auto& [targets, set] : result)
    set = normal_set(std::move(set));
  return result;
}

}  // namespace

PatternAutomaton texts_of_both(const PatternAutomaton& a, const PatternAutomaton& b,
                               const SetScope& scope) {
  using Pair = std::pair<uint32_t, uint32_t>;
  PatternAutomaton result;
  Numbers<Pair> numbers(result, scope);
  numbers.of({0, 0});
  const uint32_t last = numbers.of({a.last, b.last});
  for (Pair at; numbers.next(at);) {
    const auto& x = a.states[at.first];
    const auto& y = b.states[at.second];
    const uint32_t from = numbers.of(at);
    const auto add_empty = [&](const Pair& to) {
      const uint32_t target = numbers.of(to);
      result.states[from].empty.push_back(target);
    };
    const auto add_condition = [&](Assertion assertion, const Pair& to) {
      const uint32_t target = numbers.of(to);
      result.states[from].conditions.push_back({assertion, target});
    };
    for (const uint32_t next : x.empty)
      add_empty({next, at.second});
    for (const uint32_t next : y.empty)
      add_empty({at.first, next});
    for (const auto& condition : x.conditions)
      add_condition(condition.assertion, {condition.target, at.second});
    for (const auto& condition : y.conditions)
      add_condition(condition.assertion, {at.first, condition.target});
    for (const auto& edge : x.edges) {
      for (const auto& other : y.edges) {
        scope.budget.spend(edge.set.size() + other.set.size(), scope.where);
        CodeSet both = common_part(edge.set, other.set);
        if (both.empty()) continue;
        const uint32_t target = numbers.of({edge.target, other.target});
        result.states[from].edges.push_back({std::move(both), target});
      }
    }
  }
  result.last = last;
  return useful_part(result);
}

PatternAutomaton in_sequence(PatternAutomaton a, const PatternAutomaton& b) {
  const uint32_t first = append_states(a, b);
  a.states[a.last].empty.push_back(first);
  a.last = first + b.last;
  return a;
}

PatternAutomaton one_of_all(const std::vector<PatternAutomaton>& choices) {
  if (choices.size() == 1) return choices[0];
  PatternAutomaton result;
  result.states.resize(2);
  result.last = 1;
  for (const PatternAutomaton& one : choices) {
    const uint32_t first = append_states(result, one);
    result.states[0].empty.push_back(first);
    result.states[first + one.last].empty.push_back(1);
  }
  return result;
}

PatternAutomaton other_texts(const PatternAutomaton& a, const SetScope& scope) {
  PatternAutomaton result;
  Numbers<std::set<uint32_t>> numbers(result, scope);
  std::set<uint32_t> first = {0};
  add_closure(a, first);
  numbers.of(first);
  result.last = add_state(result, scope.where);
  std::set<uint32_t> at;
  while (numbers.next(at)) {
    const uint32_t from = numbers.of(at);
    if (!at.contains(a.last)) result.states[from].empty.push_back(result.last);
    for (auto& [targets, set] : moves(a, at, scope)) {
      if (set.empty()) continue;
      std::set<uint32_t> next = targets;
      add_closure(a, next);
      scope.budget.spend(next.size(), scope.where);
      const uint32_t target = numbers.of(next);
      result.states[from].edges.push_back({set, target});
    }
  }
  return useful_part(result);
}

PatternAutomaton these_texts(const std::vector<std::string>& texts) {
  PatternAutomaton result;
  result.states.resize(2);
  result.last = 1;
  std::map<std::pair<uint32_t, char32_t>, uint32_t> tree;
  for (std::string_view text : texts) {
    uint32_t at = 0;
    while (!text.empty()) {
      const Utf8Unit unit = decode_utf8(text);
      text.remove_prefix(unit.size);
      const auto [place, added] =
          tree.try_emplace({at, unit.code}, static_cast<uint32_t>(result.states.size()));
      if (added) {
        result.states.emplace_back();
        result.states[at].edges.push_back({{{unit.code, unit.code}}, place->second});
      }
      at = place->second;
    }
    result.states[at].empty.push_back(1);
  }
  return result;
}

PatternAutomaton any_number_of(const CodeSet& set) {
  PatternAutomaton result;
  result.states.resize(1);
  result.states[0].edges.push_back({set, 0});
  return result;
}

namespace {

// Says what is known about the character before a position, and what the next one must be.
enum class Before : uint8_t { begin, word, other };
enum class Behind : uint8_t { any, word, other_or_end, end };

// Returns the restriction on the next character if the assertion holds too, or nothing if it cannot
// hold.
std::optional<Behind> narrowed(Behind behind, Before before, Assertion assertion) {
  if (assertion == Assertion::begin)
    return before == Before::begin ? std::optional(behind) : std::nullopt;
  Behind wanted = Behind::end;
  if (assertion != Assertion::end) {
    const bool edge = assertion == Assertion::word_edge;
    wanted = (before == Before::word) == edge ? Behind::other_or_end : Behind::word;
  }
  if (behind == Behind::any || behind == wanted) return wanted;
  if (behind == Behind::word || wanted == Behind::word) return std::nullopt;
  return Behind::end;
}

bool has_conditions(const PatternAutomaton& a) {
  return std::any_of(a.states.begin(), a.states.end(),
                     [](const auto& state) { return !state.conditions.empty(); });
}

void check_edges(const PatternAutomaton& a, bool begins, bool ends, const std::string& where) {
  for (const auto& state : a.states) {
    for (const auto& condition : state.conditions) {
      const bool asks_before = condition.assertion != Assertion::end;
      const bool asks_behind = condition.assertion != Assertion::begin;
      if ((asks_before && !begins) || (asks_behind && !ends))
        throw Error(ErrorCode::bad_input, where,
                    "the pattern: '^', '$' or '\\b' is not supported in this look-around");
    }
  }
}

}  // namespace

PatternAutomaton without_conditions(const PatternAutomaton& a, bool begins, bool ends,
                                    const SetScope& scope) {
  if (!has_conditions(a)) return a;
  check_edges(a, begins, ends, scope.where);
  using Place = std::tuple<uint32_t, Before, Behind>;
  static const CodeSet others = complement(word());
  PatternAutomaton result;
  Numbers<Place> numbers(result, scope);
  numbers.of({0, Before::begin, Behind::any});
  result.last = add_state(result, scope.where);
  for (Place at; numbers.next(at);) {
    const uint32_t from = numbers.of(at);
    const auto& [id, before, behind] = at;
    const auto& state = a.states[id];
    if (id == a.last && behind != Behind::word) result.states[from].empty.push_back(result.last);
    const auto add_empty = [&](const Place& to) {
      const uint32_t target = numbers.of(to);
      result.states[from].empty.push_back(target);
    };
    for (const uint32_t next : state.empty)
      add_empty({next, before, behind});
    for (const auto& condition : state.conditions)
      if (const auto next = narrowed(behind, before, condition.assertion))
        add_empty({condition.target, before, *next});
    if (behind == Behind::end) continue;
    for (const auto& edge : state.edges) {
      for (const bool letter : {true, false}) {
        if (behind == (letter ? Behind::other_or_end : Behind::word)) continue;
        CodeSet set = common_part(edge.set, letter ? word() : others);
        if (set.empty()) continue;
        const uint32_t target =
            numbers.of({edge.target, letter ? Before::word : Before::other, Behind::any});
        result.states[from].edges.push_back({std::move(set), target});
      }
    }
  }
  return useful_part(result);
}

bool has_text(const PatternAutomaton& a, std::string_view text) {
  std::set<uint32_t> now = {0};
  add_closure(a, now);
  while (!text.empty() && !now.empty()) {
    const Utf8Unit unit = decode_utf8(text);
    text.remove_prefix(unit.size);
    std::set<uint32_t> next;
    for (const uint32_t state : now)
      for (const auto& edge : a.states[state].edges)
        if (!common_part(edge.set, {{unit.code, unit.code}}).empty()) next.insert(edge.target);
    add_closure(a, next);
    now = std::move(next);
  }
  return now.contains(a.last);
}

bool is_empty(const PatternAutomaton& a) {
  const PatternAutomaton useful = useful_part(a);
  return useful.last != 0 && useful.states[0].edges.empty() && useful.states[0].empty.empty();
}

}  // namespace walsh::grammar
