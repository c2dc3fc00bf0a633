// Keeps integers of more than 64 bits, for which a JSON value has no place, so that the arguments
// of a tool call are handed on unchanged.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace walsh {

// Parses as parse_ordered_json, but keeps such integers instead of the nearest double.
OrderedJson parse_exact_json(std::string_view text, std::string_view where,
                             const JsonLimits& limits = {});

// Returns the digits of such an integer, which is a binary value, or nothing for any other value.
std::optional<std::string> wide_integer(const OrderedJson& value);
// Returns the text of a value that may contain such integers.
std::string dump_exact(const Json& value);
std::string dump_exact(const OrderedJson& value);
// Turns such integers into doubles.
void round_wide_integers(OrderedJson& value);

}  // namespace walsh
