// Finds the end of a JSON value in a text that comes in pieces.
#pragma once

#include <cstddef>
#include <string_view>

namespace walsh {

// Counts brackets outside strings; whether the value is JSON is not its business.
class JsonScanner {
 public:
  // Bytes of `text` that belong to the value, which begins with the first one that is not white
  // space.
  size_t scan(std::string_view text);
  // Whether the value has ended: an object, a list or a string with its last character, anything
  // else in front of the next comma, bracket or white space.
  bool ended() const { return ended_; }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, bare_ = false, ended_ = false;
};

}  // namespace walsh
