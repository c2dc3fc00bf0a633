// Finds characters by their Unicode properties, for \p{...} in patterns.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/graph.h"

namespace walsh::grammar {

// Returns the characters of \p{name}, or nothing if the name is not known. By ECMA-262 it is the
// short or long name of a general category, a script as "Script=Greek" or "sc=Greek", or a binary
// property. The search takes some hundredths of a second, once for a name.
std::optional<CodeSet> characters_of(std::string_view name);

}  // namespace walsh::grammar
