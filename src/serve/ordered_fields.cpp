#include "serve/ordered_fields.h"

#include <fmt/format.h>

#include "serve/api_error.h"

namespace walsh {

void refuse_value(const std::string& path, const std::string& expected) {
  throw ApiError(400, fmt::format("'{}' must be {}", path, expected), path);
}

const OrderedJson* find_value(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool is_text(const OrderedJson& object, const char* key, const char* text) {
  const OrderedJson* value = find_value(object, key);
  return value != nullptr && *value == text;
}

const std::string& text_value(const OrderedJson& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) refuse_value(path + "." + key, "a string");
  return found->get_ref<const std::string&>();
}

}  // namespace walsh
