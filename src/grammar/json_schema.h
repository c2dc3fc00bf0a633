// Turns JSON schemas (2020-12, and spellings of older drafts and OpenAPI) into grammars of the JSON
// texts that are valid.
//
// Every text that the grammar allows is valid, but not every valid text is allowed: properties come
// in the order of the schema; other properties appear only where additionalProperties allows them
// (or the schema names no property at all); tuples have all their items; numbers have at most 16
// digits. Schemas that cannot be enforced are refused: docs/structured_output.md lists the
// keywords.
#pragma once

#include <string>

#include "grammar/graph.h"
#include "io/json.h"

namespace walsh::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{256} << 10;

// Adds a rule for the values that `schema` allows. Messages name the path in the schema after the
// builder's place. Throws bad_input for a malformed schema, one that allows nothing and one that
// cannot be enforced, and limit for one that is too large. `schema` need not outlive the call.
RuleId add_json_schema(GraphBuilder& builder, const OrderedJson& schema);

// Adds a rule for any JSON object, for the response format "json_object".
RuleId add_json_object(GraphBuilder& builder);

}  // namespace walsh::grammar
