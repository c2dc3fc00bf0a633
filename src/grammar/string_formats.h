// Gives the string formats of JSON Schema as patterns.
#pragma once

#include <string>

namespace walsh::grammar {

struct StringFormat {
  std::string pattern;   // generates valid strings only; empty: any string
  std::string superset;  // matches every valid string; empty: unknown
};

// Returns null if the format is not known.
const StringFormat* find_format(const std::string& name);

}  // namespace walsh::grammar
