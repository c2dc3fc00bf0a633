// Reads the tools of a request and its tool_choice.
#pragma once

#include <string>
#include <string_view>

#include "io/json.h"

namespace walsh {

// Names of tools may have these characters.
inline constexpr std::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";

struct ToolRequest {
  // These tools, each as {"type": "function", ...}, may be called.
  OrderedJson tools = OrderedJson::array();
  bool required = false;  // at least one call is required
  bool parallel = true;   // an answer may contain several calls

  bool any() const { return !tools.empty(); }
  // Returns whether the arguments of a tool must match its schema wherever it is called.
  bool strict(size_t index) const;
  bool any_strict() const;
};

// Reads tools, tool_choice (auto, none, required, or a function, which is then the only one and is
// called once) and parallel_tool_calls. Throws ApiError.
ToolRequest tool_request(const OrderedJson& request);

}  // namespace walsh
