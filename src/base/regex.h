// Matches regular expressions of untrusted files with PCRE2 and bounds their work.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/step_budget.h"

namespace walsh {

// Names a range of bytes: a match, or a piece of a text.
struct Span {
  size_t begin, end;
};

// Holds a compiled pattern. Its const functions are thread-safe. Searches count one step for every
// item of the pattern that is tried and for every byte that an item passes over.
class Regex {
 public:
  // Compiles a pattern with PCRE2 syntax over valid UTF-8 text, with Unicode properties; ^ and $
  // match at line feeds, too. Throws bad_input if it cannot be compiled.
  static Regex for_text(std::string_view pattern, std::string_view where);
  // Compiles a pattern with PCRE2 syntax over arbitrary bytes, for short subjects such as names; ^
  // and $ match only at the ends. Throws bad_input if it cannot be compiled.
  static Regex for_names(std::string_view pattern, std::string_view where);

  // Finds successive matches from left to right, including empty ones unless they touch the
  // previous match. Throws limit if the search exceeds the budget, and whatever the budget's check
  // throws.
  void find_all(std::string_view text, StepBudget& budget, std::vector<Span>& matches) const;

  // Returns whether the pattern matches somewhere in `text`. Throws what find_all throws.
  bool matches(std::string_view text, StepBudget& budget) const;

 private:
  struct Program;
  class Search;
  explicit Regex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace walsh
