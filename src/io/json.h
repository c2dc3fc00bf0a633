// Parses untrusted JSON within bounds, and gets values by functions whose errors name the key and
// the type.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "walsh/error.h"

namespace walsh {

using Json = nlohmann::json;                 // it sorts keys alphabetically
using OrderedJson = nlohmann::ordered_json;  // it keeps keys in the order of the text

struct JsonLimits {
  int max_depth = 64;                 // arrays and objects nest at most this deep
  bool refuse_duplicate_keys = true;  // if false, the last of equal keys wins
  // This many values may still be parsed; every text that uses these limits counts it down. Null
  // means that there is no limit. A value takes up to some hundred bytes of memory and as few as
  // two bytes of text.
  int64_t* values = nullptr;
};

// Parses one JSON value as RFC 8259 defines it, without comments and NaN. Throws bad_input naming
// `where`, line and column for a syntax error, invalid UTF-8, a number that does not fit, too deep
// nesting, too many values or a duplicate key, and limit when memory runs out. Nothing but
// walsh::Error leaves this function.
Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

// Keeps the order of keys, which matters for what templates show to models.
OrderedJson parse_ordered_json(std::string_view text, std::string_view where,
                               const JsonLimits& limits = {});

// Returns a value as ASCII text, so that nothing in it can act on a terminal. Bytes that are not
// UTF-8, which paths may contain, become U+FFFD.
template <typename Value>
std::string format_json(const Value& value, int indent) {
  return value.dump(indent, ' ', true, Value::error_handler_t::replace);
}

// Returns what a message says was found, such as "null", "a boolean", "the integer 12" or "a
// string".
std::string describe_json(const Json& value);

// These get values by their keys. `object` must be an object, else bad_input. get_* requires the
// key; find_* returns nothing if the key is absent or null. Any other type, or a value out of
// range, throws bad_input naming `where`, the key, what was found and what was expected.
int64_t get_int(const Json& object, const char* key, std::string_view where,
                int64_t min = std::numeric_limits<int64_t>::min(),
                int64_t max = std::numeric_limits<int64_t>::max());
std::optional<int64_t> find_int(const Json& object, const char* key, std::string_view where,
                                int64_t min = std::numeric_limits<int64_t>::min(),
                                int64_t max = std::numeric_limits<int64_t>::max());

// Accepts integers as well.
double get_number(const Json& object, const char* key, std::string_view where,
                  double min = std::numeric_limits<double>::lowest(),
                  double max = std::numeric_limits<double>::max());
std::optional<double> find_number(const Json& object, const char* key, std::string_view where,
                                  double min = std::numeric_limits<double>::lowest(),
                                  double max = std::numeric_limits<double>::max());

bool get_bool(const Json& object, const char* key, std::string_view where);
std::optional<bool> find_bool(const Json& object, const char* key, std::string_view where);

// Finds an id or a list of ids, each of which may be any 32-bit integer.
std::optional<std::vector<int32_t>> find_ids(const Json& object, const char* key,
                                             std::string_view where);

std::string get_string(const Json& object, const char* key, std::string_view where);
std::optional<std::string> find_string(const Json& object, const char* key, std::string_view where);

// These two return references and pointers into `object`.
const Json& get_object(const Json& object, const char* key, std::string_view where);
const Json* find_object(const Json& object, const char* key, std::string_view where);
const Json& get_array(const Json& object, const char* key, std::string_view where);
const Json* find_array(const Json& object, const char* key, std::string_view where);

}  // namespace walsh
