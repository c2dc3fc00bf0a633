// The tools of a request and what the client wants of them.
#pragma once

#include <string>
#include <string_view>

#include "io/json.h"

namespace walsh {

// Of which names of tools are made.
inline constexpr std::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";

struct ToolRequest {
  OrderedJson tools = OrderedJson::array();  // that may be called: {"type": "function", ...}
  bool required = false;                     // one of them has to be
  bool parallel = true;                      // several calls in one answer

  bool any() const { return !tools.empty(); }
  // Whether the client wants the arguments of a tool to match its schema wherever it is called.
  bool strict(size_t index) const;
  bool any_strict() const;
};

// tools, tool_choice (auto, none, required, or a function, which is the only one left then and is
// called once) and parallel_tool_calls. Throws ApiError.
ToolRequest tool_request(const OrderedJson& request);

}  // namespace walsh
