// Finds characters by their Unicode properties, for \p{...} in patterns.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/graph.h"

namespace walsh::grammar {

// Returns the characters of \p{name} (ECMA-262: a general category by its short or long name, a
// script as "Script=Greek" or "sc=Greek", a binary property); nothing if the name is not known. The
// search takes some hundredths of a second, once for a name.
std::optional<CodeSet> characters_of(std::string_view name);

}  // namespace walsh::grammar
