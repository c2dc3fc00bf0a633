// Reads calls as LFM2 writes them, in Python: [NAME(KEY=VALUE, ...), ...].
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace walsh {

struct PythonCall {
  std::string name;
  OrderedJson arguments;
};

// Returns nothing if the text is no such list; positional arguments and expressions are none. Sets
// become lists, since JSON has no sets, and numbers may begin with zeros.
std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view text);

}  // namespace walsh
