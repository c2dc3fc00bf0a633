// Fields of a request whose objects keep their order, because a template may see them.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// Throws the 400 that says what a field must be.
[[noreturn]] void refuse_value(const std::string& path, const std::string& expected);

// The string `key` of an object that stands at `path`; throws a 400 without one.
const std::string& text_value(const OrderedJson& object, const char* key, const std::string& path);

}  // namespace walsh
