// Reads the typed objects ("type": "...") of a tokenizer.json.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "text/pattern.h"

namespace walsh {

// Refuses a key that is not listed; "type" is always allowed.
void check_keys(const Json& object, std::initializer_list<std::string_view> allowed,
                std::string_view where);

// Returns the components of `value` in order, with every Sequence replaced by its members (key
// `members_key`). Null gives none. Each is an object with a string "type".
std::vector<const Json*> flatten_sequence(const Json& value, const char* members_key,
                                          std::string_view where);

// Returns a pattern, which is given as {"String": "..."} or {"Regex": "..."}.
Pattern read_pattern(const Json& object, const char* key, std::string_view where);

// Returns a string of exactly one character.
char32_t get_character(const Json& object, const char* key, std::string_view where);

[[noreturn]] void refuse_component(std::string_view kind, std::string_view type,
                                   std::string_view where);

}  // namespace walsh
