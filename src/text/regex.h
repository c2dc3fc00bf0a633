// Regular expressions over valid UTF-8 text (PCRE2).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace walsh {

// A match or a piece of a text, in bytes.
struct Span {
  size_t begin, end;
};

// A compiled pattern; const use is thread-safe.
class Regex {
 public:
  // From the Oniguruma dialect of tokenizer.json. Throws bad_input if it cannot be compiled.
  static Regex from_oniguruma(std::string_view pattern, std::string_view where);
  // From PCRE2 syntax, for the patterns that walsh itself contains.
  static Regex from_pcre2(std::string_view pattern, std::string_view where);

  // Successive matches from left to right, empty ones included unless they touch the previous
  // match. Throws limit if matching takes too many steps.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

  // Whether the pattern matches somewhere in `text`.
  bool matches(std::string_view text) const;

 private:
  struct Program;
  explicit Regex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace walsh
