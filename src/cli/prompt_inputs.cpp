#include "cli/prompt_inputs.h"

#include <charconv>
#include <cstdint>

#include "io/mapped_file.h"
#include "vision/image_encoder.h"

namespace walsh::cli {
namespace {

constexpr std::string_view kLetters = "nrt'\"\\";
constexpr std::string_view kCharacters = "\n\r\t'\"\\";

// Returns the byte of the two hexadecimal digits at the start of `text`, or -1 if there are none.
int hex_byte(std::string_view text) {
  unsigned char byte = 0;
  if (text.size() < 2) return -1;
  const auto read = std::from_chars(text.data(), text.data() + 2, byte, 16);
  return read.ptr == text.data() + 2 ? byte : -1;
}

}  // namespace

std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const size_t letter = text[i] == '\\' ? kLetters.find(next) : kLetters.npos;
    const int byte = text[i] == '\\' && next == 'x' ? hex_byte(text.substr(i + 2)) : -1;
    if (letter != kLetters.npos) {
      result += kCharacters[letter];
      i += 1;
    } else if (byte >= 0) {
      result += static_cast<char>(byte);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string read_image(const std::string& path) {
  return read_text_input(path, ImageLimits().bytes);
}

std::vector<std::string> read_images(const std::vector<std::string>& paths) {
  std::vector<std::string> images;
  for (const std::string& path : paths)
    images.push_back(read_image(path));
  return images;
}

}  // namespace walsh::cli
