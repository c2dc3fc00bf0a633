#include "base/percent.h"

#include <cctype>

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

}  // namespace walsh
