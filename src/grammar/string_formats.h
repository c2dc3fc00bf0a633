// Gives the string formats of JSON Schema as patterns.
#pragma once

#include <string>

namespace walsh::grammar {

struct StringFormat {
  std::string pattern;   // it generates valid strings only; empty means any string
  std::string superset;  // it matches every valid string; empty means unknown
};

// Returns the format of that name, or null if it is not known.
const StringFormat* find_format(const std::string& name);

}  // namespace walsh::grammar
