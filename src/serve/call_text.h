// Parsers of calls that models write in a notation of their own derive from this, which reads a
// text from its front.
#pragma once

#include <algorithm>
#include <string_view>

namespace walsh {

class CallText {
 public:
  // This is thrown where a text has no call or no value.
  struct NoValue {};

 protected:
  static constexpr std::string_view kSpace = " \n\r\t";

  explicit CallText(std::string_view text) : text_(text) {}

  void skip_space() {
    text_ = text_.substr(std::min(text_.find_first_not_of(kSpace), text_.size()));
  }
  // These skip white space first.
  bool next_is(std::string_view token) {
    skip_space();
    return text_.starts_with(token);
  }
  bool next_is(char token) { return next_is({&token, 1}); }
  bool take(char token) {
    if (!next_is(token)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char token) {
    if (!take(token)) throw NoValue();
  }
  // Lists and objects in each other call these; no text takes the parser too deep.
  void enter() {
    if (++level_ > kMostLevels) throw NoValue();
  }
  void leave() { --level_; }

  std::string_view text_;

 private:
  static constexpr int kMostLevels = 64;

  int level_ = 0;
};

}  // namespace walsh
