#include "serve/image_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "serve/api_error.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

constexpr std::array<int8_t, 256> digit_values() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}

// Returns the file in a data: URL. Files without a type may be anything: their first bytes say what
// they are.
std::string file_of(std::string_view url, const std::string& path) {
  constexpr std::string_view kScheme = "data:", kCoding = ";base64";
  if (!url.starts_with(kScheme)) refuse_value(path, "a data: URL: this server fetches nothing");
  const size_t comma = url.find(',');
  if (comma == url.npos) refuse_value(path, "a data: URL with a comma before the data");
  std::string_view type = url.substr(kScheme.size(), comma - kScheme.size());
  if (!type.ends_with(kCoding)) refuse_value(path, "a data: URL with data in base64");
  type.remove_suffix(kCoding.size());
  if (!type.empty() && !type.starts_with("image/") && type != "application/octet-stream")
    refuse_value(path, "an image: JPEG, PNG or WebP");
  return decoded_base64(url.substr(comma + 1), path);
}

// Returns the URL of an image part, an object or, as some clients send it, a string.
std::string_view url_of(const OrderedJson& part, const std::string& path) {
  const OrderedJson* url = find_value(part, "image_url");
  if (url == nullptr) refuse_value(path, "an object with a \"url\"");
  if (url->is_string()) return url->get_ref<const std::string&>();
  if (!url->is_object()) refuse_value(path, "an object with a \"url\"");
  return text_value(*url, "url", path);
}

}  // namespace

std::string decoded_base64(std::string_view text, const std::string& path) {
  static constexpr std::array<int8_t, 256> kValues = digit_values();
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding)
    text.remove_suffix(1);
  if (text.empty()) refuse_value(path, "data in base64, but it is empty");
  if (text.size() % 4 == 1) refuse_value(path, "data in base64, but its end is missing");
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t group = 0;
  int bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t value = kValues[static_cast<unsigned char>(text[i])];
    if (value < 0)
      refuse_value(path, fmt::format("data in base64, but byte {} of it is no digit", i));
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 255);
  }
  return bytes;
}

bool has_part(const OrderedJson& content, const char* type) {
  return content.is_array() && std::any_of(content.begin(), content.end(), [&](const auto& part) {
           return part.is_object() && is_text(part, "type", type);
         });
}

OrderedJson image_part(const std::string& base64, const std::string& type) {
  return {{"type", "image_url"},
          {"image_url", {{"url", fmt::format("data:{};base64,{}", type, base64)}}}};
}

std::vector<std::string> take_images(OrderedJson& chat, const ImageReader& reader) {
  std::vector<std::string> files;
  const auto messages = chat.find("messages");
  if (messages == chat.end() || !messages->is_array()) return files;
  for (size_t i = 0; i < messages->size(); ++i) {
    OrderedJson& message = (*messages)[i];
    const auto content = message.is_object() ? message.find("content") : message.end();
    if (!message.is_object() || content == message.end() || !content->is_array()) continue;
    for (size_t k = 0; k < content->size(); ++k) {
      OrderedJson& part = (*content)[k];
      const std::string path = fmt::format("messages[{}].content[{}]", i, k);
      if (!part.is_object()) continue;
      // Only what is made of a file below may stand there.
      if (is_text(part, "type", "image"))
        refuse_value(path, "a part of type \"text\" or \"image_url\"");
      if (!is_text(part, "type", "image_url")) continue;
      if (!reader.present())
        throw ApiError(400, fmt::format("'{}' is an image, but {}", path, reader.missing()), path);
      if (files.size() == kMostImages)
        throw ApiError(400, fmt::format("a request has at most {} images", kMostImages), path);
      files.push_back(file_of(url_of(part, path + ".image_url"), path + ".image_url"));
      part = {{"type", "image"}};
    }
  }
  return files;
}

ApiError image_error(const Error& error) {
  if (dynamic_cast<const NoRoomForImages*>(&error) != nullptr) return {503, error.what()};
  if (error.code() == ErrorCode::bad_input) return {400, error.what(), "messages"};
  return api_error(error);
}

// Nobody writes letters of keys as escapes but to hide them.
bool may_have_images(std::string_view body) {
  if (body.find("\"image") != body.npos || body.find("\"input_image") != body.npos) return true;
  constexpr std::string_view kEscape = "\\u00";
  for (size_t at = body.find(kEscape); at != body.npos; at = body.find(kEscape, at + 1)) {
    const size_t digit = at + kEscape.size();
    if (digit < body.size() && body[digit] >= '4' && body[digit] <= '7') return true;
  }
  return false;
}

}  // namespace walsh
