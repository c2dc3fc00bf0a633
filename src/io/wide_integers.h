// Integers of more than 64 bits, which a JSON value has no place for: what a tool was called with
// is handed on as it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace walsh {

// As parse_ordered_json, where such integers become the nearest double; here they are kept.
OrderedJson parse_exact_json(std::string_view text, std::string_view where,
                             const JsonLimits& limits = {});

// The digits of such an integer, which is a binary value; no other text has one.
std::optional<std::string> wide_integer(const OrderedJson& value);
// The text of a value that may have some in it.
std::string dump_exact(const Json& value);
std::string dump_exact(const OrderedJson& value);
// Makes doubles of them.
void round_wide_integers(OrderedJson& value);

}  // namespace walsh
