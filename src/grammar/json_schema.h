// JSON schemas (2020-12, and what older drafts and OpenAPI write otherwise) as grammars of the JSON
// texts that are valid.
//
// What is generated is always valid, but not everything that is valid can be generated: properties
// come in the order of the schema; other properties only where additionalProperties says so (or
// nothing is said of any property); tuples have all their items; numbers have at most 16 digits.
// What cannot be enforced is refused: docs/structured_output.md lists the keywords.
#pragma once

#include <string>

#include "grammar/graph.h"
#include "io/json.h"

namespace walsh::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{256} << 10;

// Adds a rule for the values that `schema` allows. Messages name the path in the schema behind the
// builder's place. Throws bad_input for what is no schema, allows nothing or cannot be enforced,
// limit for what is too large. `schema` need not outlive the call.
RuleId add_json_schema(GraphBuilder& builder, const OrderedJson& schema);

// Any JSON object: what "json_object" asks for.
RuleId add_json_object(GraphBuilder& builder);

}  // namespace walsh::grammar
