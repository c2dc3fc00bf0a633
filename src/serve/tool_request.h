// The tools of a request and what the client wants of them.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

struct ToolRequest {
  OrderedJson tools = OrderedJson::array();  // that may be called: {"type": "function", ...}
  bool required = false;                     // one of them has to be
  bool parallel = true;                      // several calls in one answer

  bool any() const { return !tools.empty(); }
};

// tools, tool_choice (auto, none, required or a function; only that one is left then) and
// parallel_tool_calls. Throws ApiError.
ToolRequest tool_request(const OrderedJson& request);

}  // namespace walsh
