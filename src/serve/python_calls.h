// Reads calls as LFM2 writes them in Python, which is [NAME(KEY=VALUE, ...), ...].
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

// Returns the calls, or nothing if the text is no such list. Positional arguments and expressions
// are not read. Sets become lists, since JSON has no sets, and numbers may begin with zeros.
std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view text);

}  // namespace walsh
