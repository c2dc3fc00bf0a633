// Implements the patterns of Split and Replace, and splits a text at their matches.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/regex.h"

namespace walsh {

// A pattern is a literal string or a regular expression. Const use is thread-safe.
class Pattern {
 public:
  // Returns a pattern that matches a text of 1 to 4096 bytes. Throws bad_input for another text.
  static Pattern literal(std::string_view text, std::string_view where);
  static Pattern regex(std::string_view oniguruma, std::string_view where);
  static Pattern regex(Regex regex) { return Pattern(std::move(regex)); }

  // Finds non-overlapping matches from left to right. Throws as Regex::find_all does.
  void find_all(std::string_view text, StepBudget& steps, std::vector<Span>& matches) const;

  // Replaces every match by `content`, taken literally. Throws limit if the result exceeds
  // `max_size` bytes, and as find_all does.
  std::string replace_all(std::string_view text, std::string_view content, size_t max_size,
                          StepBudget& steps) const;
  // Returns the same, and updates `start` as Normalizer::apply() does; `content` counts as part of
  // the match's last character.
  std::string replace_all(std::string_view text, std::string_view content, size_t& start,
                          size_t max_size, StepBudget& steps) const;

 private:
  explicit Pattern(std::variant<std::string, Regex> what) : what_(std::move(what)) {}

  std::variant<std::string, Regex> what_;
};

// Returns the most bytes that replacements may make of a text, because a chain of them must not
// grow it exponentially.
constexpr size_t max_replaced_size(size_t text) {
  return 16 * text + 65536;
}

enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// Returns the behavior that is called "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext"
// or "Contiguous".
SplitBehavior read_split_behavior(std::string_view name, std::string_view where);

// Returns the pieces into which `matches` cut a text of `size` bytes, in order. Pieces may be
// empty. `inverted` swaps the roles of matches and the text between them.
std::vector<Span> split_pieces(size_t size, const std::vector<Span>& matches,
                               SplitBehavior behavior, bool inverted);

}  // namespace walsh
