// Fields of a request whose objects keep their order, because a template may see them.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// Throws the 400 that says what a field must be.
[[noreturn]] void refuse_value(const std::string& path, const std::string& expected);

// The field `key` of an object; null if it is absent or null.
const OrderedJson* find_value(const OrderedJson& object, const char* key);

// Whether the field `key` of an object is this string.
bool is_text(const OrderedJson& object, const char* key, const char* text);

// The string `key` of an object that stands at `path`; throws a 400 without one.
const std::string& text_value(const OrderedJson& object, const char* key, const std::string& path);

}  // namespace walsh
