#include "base/percent.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace walsh {

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t place) {
      return place < text.size() && std::isxdigit(static_cast<unsigned char>(text[place])) != 0;
    };
    if (text[i] == '%' && digit(i + 1) && digit(i + 2)) {
      result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string query_value(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    if (part.starts_with(key) && part.substr(key.size()).starts_with('=')) {
      std::string value(part.substr(key.size() + 1));
      std::replace(value.begin(), value.end(), '+', ' ');
      return percent_decoded(value);
    }
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return "";
}

}  // namespace walsh
