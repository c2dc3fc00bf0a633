// Finds the end of a JSON value in a text that arrives in pieces.
#pragma once

#include <cstddef>
#include <string_view>

namespace walsh {

// Counts brackets outside strings, and does not check that the value is valid JSON.
class JsonScanner {
 public:
  // Returns how many bytes of `text` belong to the value, which begins with the first byte that is
  // not white space.
  size_t scan(std::string_view text);
  // Returns whether the value is complete. Objects, lists and strings end with their last
  // character, other values before the next comma, bracket or white space.
  bool ended() const { return ended_; }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, bare_ = false, ended_ = false;
};

}  // namespace walsh
