// The formats of strings as patterns.
#pragma once

#include <string>

namespace walsh::grammar {

struct StringFormat {
  std::string pattern;   // what is written, all of it valid; empty: any string
  std::string superset;  // has every valid string; empty: nothing is known
};

// Nothing if the format is not known.
const StringFormat* find_format(const std::string& name);

}  // namespace walsh::grammar
