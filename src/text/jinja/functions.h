// Looks up filters, tests, methods of objects and global functions, which templates use by name.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace walsh::jinja {

// Returns nullptr if the name is unknown. The argument after the runtime is the value in front of
// `|` or `is`; a test returns a boolean.
Function find_filter(std::string_view name);
Function find_test(std::string_view name);

// Returns a global variable, which is undefined if there is none.
Value global_of(Runtime& runtime, std::string_view name);

// Returns value.name, which is a method or an attribute, or an item of a dict. It is undefined if
// there is none, or if it would modify the object.
Value attribute_of(Runtime& runtime, const Value& value, std::string_view name);
// Returns value[key], which is an item or, if there is none, an attribute.
Value subscript_of(Runtime& runtime, const Value& value, const Value& key);

// Sets space.name to the value.
void set_attribute(Runtime& runtime, Namespace& space, std::string_view name, const Value& value);

// These are parts of the tables above, by file.
Function find_text_method(std::string_view name);
Function find_text_filter(std::string_view name);
Function find_sequence_filter(std::string_view name);

struct NamedFunction {
  std::string_view name;
  Function function;
};

template <typename Table>
Function look_up(const Table& table, std::string_view name) {
  for (const NamedFunction& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace walsh::jinja
