// Quotes text for a shell, for tests that run commands.
#pragma once

#include <string>

namespace walsh {

inline std::string quoted(const std::string& text) {
  std::string result;
  result += '\'';
  for (const char c : text) {
    if (c == '\'') {
      result.append("'\\''");
    } else {
      result += c;
    }
  }
  result += '\'';
  return result;
}

}  // namespace walsh
