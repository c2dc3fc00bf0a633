// References of JSON schemas: $id, $anchor and what else names a schema are resolved once, so that
// whoever reads the schema has pointers from its root and nothing else.
#pragma once

#include <string>

#include "base/step_budget.h"
#include "io/json.h"

namespace walsh::grammar {

// The schema with every $ref, $dynamicRef and $recursiveRef whose target is in it as "#" and a JSON
// pointer from the root, in which '%' is written as "%25". Others stay as they are. The work is
// taken from `budget`, which throws limit naming `where`.
OrderedJson with_pointers(const OrderedJson& root, const std::string& where, StepBudget& budget);

// Whether a draft is declared (up to 7) in which nothing beside a $ref counts.
bool ignores_beside_ref(const OrderedJson& root);

// "%20" and the like as the characters that they stand for.
std::string percent_decoded(std::string_view text);

// The part `name` behind a JSON pointer.
std::string longer_pointer(const std::string& pointer, std::string_view name);

}  // namespace walsh::grammar
