#include "grammar/pattern_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "grammar/pattern_sets.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMaxStates = 20'000;
// Groups with look-around become at most this many alternatives when they are multiplied out.
constexpr size_t kMaxAlternatives = 64;

class Maker {
 public:
  Maker(PatternAutomaton& automaton, const std::string& where)
      : automaton_(automaton), where_(where) {}

  uint32_t state() {
    if (automaton_.states.size() >= kMaxStates) too_large();
    automaton_.states.emplace_back();
    return static_cast<uint32_t>(automaton_.states.size() - 1);
  }

  // Returns the state after `part`. Parts without states count too, because they may be repeated.
  uint32_t add(const Part& part, uint32_t from) {
    if (++parts_ > 10 * kMaxStates) too_large();
    switch (part.kind) {
      case Part::Kind::set: {
        const uint32_t to = state();
        automaton_.states[from].edges.push_back({part.set, to});
        return to;
      }
      case Part::Kind::sequence:
        for (const Part& one : part.parts)
          from = add(one, from);
        return from;
      case Part::Kind::choice: {
        const uint32_t to = state();
        for (const Part& one : part.parts) {
          const uint32_t begin = state();
          empty(from, begin);
          empty(add(one, begin), to);
        }
        return to;
      }
      case Part::Kind::repeat:
        return add_repeat(part, from);
      case Part::Kind::assertion: {
        const uint32_t to = state();
        automaton_.states[from].conditions.push_back({part.assertion, to});
        return to;
      }
      case Part::Kind::look:
        throw Error(ErrorCode::bad_input, where_,
                    "the pattern: look-around is not supported inside of what is repeated or a "
                    "choice");
    }
    return from;
  }

 private:
  [[noreturn]] void too_large() const {
    throw Error(ErrorCode::limit, where_,
                fmt::format("the pattern needs more than {} states", kMaxStates));
  }
  void empty(uint32_t from, uint32_t to) { automaton_.states[from].empty.push_back(to); }

  uint32_t add_repeat(const Part& part, uint32_t from) {
    for (int64_t i = 0; i < part.least; ++i)
      from = add(part.parts[0], from);
    const uint32_t to = state();
    if (part.most < 0) {
      const uint32_t loop = state();
      empty(from, loop);
      empty(add(part.parts[0], loop), loop);
      empty(loop, to);
      return to;
    }
    empty(from, to);
    for (int64_t i = part.least; i < part.most; ++i) {
      from = add(part.parts[0], from);
      empty(from, to);
    }
    return to;
  }

  PatternAutomaton& automaton_;
  const std::string& where_;
  size_t parts_ = 0;
};

bool looks_around(const Part& part) {
  return part.kind == Part::Kind::look ||
         std::any_of(part.parts.begin(), part.parts.end(), looks_around);
}

using Sequence = std::vector<Part>;

// Builds the automaton of a pattern with look-around in its outermost alternatives: a look-ahead
// splits the text in two, and the remainder must match both its content and what follows.
class LanguageMaker {
 public:
  // `begins` says that the pattern starts at the beginning of the text.
  LanguageMaker(const SetScope& scope, bool begins) : scope_(scope), begins_(begins) {}

  PatternAutomaton of(const Part& part) {
    if (!looks_around(part)) {
      PatternAutomaton automaton;
      Maker maker(automaton, scope_.where);
      automaton.last = maker.add(part, maker.state());
      scope_.budget.spend(automaton.states.size(), scope_.where);
      return automaton;
    }
    std::vector<PatternAutomaton> choices;
    for (const Sequence& sequence : alternatives(part))
      choices.push_back(of_sequence(sequence, begins_));
    return one_of_all(choices);
  }

 private:
  [[noreturn]] void fail(const char* reason) const {
    throw Error(ErrorCode::bad_input, scope_.where, fmt::format("the pattern: {}", reason));
  }

  // Multiplies out groups with look-around, so that look-around occurs only in plain sequences.
  std::vector<Sequence> alternatives(const Part& part) {
    if (!looks_around(part) || part.kind == Part::Kind::look) return {{part}};
    if (part.kind == Part::Kind::repeat) fail("look-around is not supported inside a repetition");
    std::vector<Sequence> result;
    if (part.kind == Part::Kind::choice) {
      for (const Part& one : part.parts)
        for (Sequence& more : alternatives(one))
          result.push_back(std::move(more));
    } else {
      result.emplace_back();
      for (const Part& one : part.parts) {
        std::vector<Sequence> longer;
        for (const Sequence& before : result) {
          for (const Sequence& more : alternatives(one)) {
            longer.push_back(before);
            longer.back().insert(longer.back().end(), more.begin(), more.end());
          }
        }
        result = std::move(longer);
        if (result.size() > kMaxAlternatives) break;
      }
    }
    if (result.size() > kMaxAlternatives) fail("look-around is used in too many alternatives");
    return result;
  }

  PatternAutomaton of_sequence(std::span<const Part> parts, bool begins) {
    const auto ahead = std::find_if(parts.begin(), parts.end(), [](const Part& part) {
      return part.kind == Part::Kind::look && !part.behind;
    });
    const auto at = static_cast<size_t>(ahead - parts.begin());
    if (ahead == parts.end()) return of_behinds(parts);
    begins = (begins || at > 0) && std::all_of(parts.begin(), ahead, [](const Part& part) {
               return part.kind == Part::Kind::assertion && part.assertion == Assertion::begin;
             });
    const std::span<const Part> rest = parts.subspan(at + 1);
    if (!begins && std::any_of(rest.begin(), rest.end(), [](const Part& part) {
          return part.kind == Part::Kind::look && part.behind;
        }))
      fail("look-behind is not supported after look-ahead in the middle of a text");
    PatternAutomaton look = in_sequence(of(ahead->parts[0]), any_number_of(complement({})));
    if (ahead->negative) look = other_texts(without_conditions(look, begins, true, scope_), scope_);
    return in_sequence(of_behinds(parts.first(at)),
                       texts_of_both(look, of_sequence(rest, begins), scope_));
  }

  // Returns the automaton of parts without look-ahead.
  PatternAutomaton of_behinds(std::span<const Part> parts) {
    for (size_t i = parts.size(); i-- > 0;) {
      if (parts[i].kind != Part::Kind::look) continue;
      PatternAutomaton look = in_sequence(any_number_of(complement({})), of(parts[i].parts[0]));
      if (parts[i].negative)
        look = other_texts(without_conditions(look, true, false, scope_), scope_);
      return in_sequence(texts_of_both(of_behinds(parts.first(i)), look, scope_),
                         of_behinds(parts.subspan(i + 1)));
    }
    Part all;
    all.parts.assign(parts.begin(), parts.end());
    return of(all);
  }

  const SetScope& scope_;
  const bool begins_;
};

Part anything(PatternUse use) {
  Part any{Part::Kind::set};
  any.set = use == PatternUse::exact ? complement({}) : printable_codes();
  Part repeat{Part::Kind::repeat};
  repeat.least = 0;
  repeat.most = -1;
  repeat.parts.push_back(std::move(any));
  return repeat;
}

bool takes(const Part& sequence, bool first, Assertion assertion) {
  if (sequence.parts.empty()) return false;
  const Part& part = first ? sequence.parts.front() : sequence.parts.back();
  return part.kind == Part::Kind::assertion && part.assertion == assertion;
}

}  // namespace

PatternAutomaton parse_pattern(std::string_view pattern, const std::string& where,
                               StepBudget& budget, PatternUse use) {
  Part all = parse_parts(pattern, where, use);
  // Assertions at both ends of an alternative need no condition.
  for (Part& one : all.parts) {
    const bool begins = takes(one, true, Assertion::begin);
    const bool look = looks_around(one);
    if (begins && !look) one.parts.erase(one.parts.begin());
    const bool ends = takes(one, false, Assertion::end);
    if (ends) one.parts.pop_back();
    if (use == PatternUse::text) continue;
    if (!begins) one.parts.insert(one.parts.begin(), anything(use));
    if (!ends) one.parts.push_back(anything(use));
  }
  const SetScope scope{where, budget};
  LanguageMaker maker(scope, use == PatternUse::text);
  return without_conditions(maker.of(all), true, true, scope);
}

}  // namespace walsh::grammar
