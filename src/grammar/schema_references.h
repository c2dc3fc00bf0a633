// Resolves the references of JSON schemas. $id, $anchor and other names of schemas are replaced by
// JSON pointers from the root, so that readers of the schema handle nothing else.
#pragma once

#include <string>

#include "base/step_budget.h"
#include "io/json.h"

namespace walsh::grammar {

// Returns the schema with every $ref, $dynamicRef and $recursiveRef whose target lies in it
// replaced by "#" and a JSON pointer from the root, with '%' written as "%25". Other references
// stay. The work is taken from `budget`, which throws limit naming `where`.
OrderedJson with_pointers(const OrderedJson& root, const std::string& where, StepBudget& budget);

// Returns whether the declared draft (up to 7) ignores keywords beside a $ref.
bool ignores_beside_ref(const OrderedJson& root);

// Appends the part `name` to a JSON pointer.
std::string longer_pointer(const std::string& pointer, std::string_view name);

}  // namespace walsh::grammar
