// Regular expressions (PCRE2) whose work is bounded, for the patterns of untrusted files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/step_budget.h"

namespace walsh {

// A match, or a piece of a text, as byte offsets.
struct Span {
  size_t begin, end;
};

// A compiled pattern; const use is thread-safe. Searches count one step for every item of the
// pattern that is tried and for every byte that an item passes over.
class Regex {
 public:
  // PCRE2 syntax over valid UTF-8 text, with Unicode properties; ^ and $ match at line feeds too.
  // Throws bad_input if it cannot be compiled.
  static Regex for_text(std::string_view pattern, std::string_view where);
  // PCRE2 syntax over arbitrary bytes, for short subjects such as names; ^ and $ match only at the
  // ends. Throws bad_input if it cannot be compiled.
  static Regex for_names(std::string_view pattern, std::string_view where);

  // Successive matches from left to right, including empty ones unless they touch the previous
  // match. Throws limit if the search exceeds the budget, and whatever the budget's check throws.
  void find_all(std::string_view text, StepBudget& budget, std::vector<Span>& matches) const;

  // Returns whether the pattern matches somewhere in `text`. Throws as find_all.
  bool matches(std::string_view text, StepBudget& budget) const;

 private:
  struct Program;
  class Search;
  explicit Regex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace walsh
