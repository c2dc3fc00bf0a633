// Gives access to fields of request objects that keep their order, because templates may show it.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// Throws an ApiError 400 which says what the field at `path` must be.
[[noreturn]] void refuse_value(const std::string& path, const std::string& expected);

// Returns the field `key` of an object, or null if it is absent or null.
const OrderedJson* find_value(const OrderedJson& object, const char* key);

// Returns whether the field `key` of an object is the string `text`.
bool is_text(const OrderedJson& object, const char* key, const char* text);

// Returns the string `key` of the object at `path`; throws ApiError 400 if there is none.
const std::string& text_value(const OrderedJson& object, const char* key, const std::string& path);

}  // namespace walsh
