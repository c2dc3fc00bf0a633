#include "serve/json_scanner.h"

namespace walsh {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

size_t JsonScanner::scan(std::string_view text) {
  for (size_t i = 0; i < text.size() && !ended_; ++i) {
    const char c = text[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        ended_ = depth_ == 0;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (bare_ && (c == ',' || c == '}' || c == ']' || is_space(c))) {
      ended_ = true;
      return i;
    } else if (c == '}' || c == ']') {
      ended_ = --depth_ <= 0;
    } else if (depth_ == 0 && !is_space(c)) {
      bare_ = true;
    }
    if (ended_) return i + 1;
  }
  return text.size();
}

}  // namespace walsh
