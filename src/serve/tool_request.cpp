#include "serve/tool_request.h"

#include <fmt/format.h>

#include "serve/api_error.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

constexpr size_t kMostTools = 128, kLongestName = 64;

void check_tool(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object() || (tool.contains("type") && tool["type"] != "function") ||
      !tool.contains("function") || !tool["function"].is_object())
    refuse_value(path, "a tool of type \"function\" with a \"function\"");
  const OrderedJson& function = tool["function"];
  const OrderedJson* name = find_value(function, "name");
  const std::string text = name != nullptr && name->is_string() ? name->get<std::string>() : "";
  const bool valid = !text.empty() && text.size() <= kLongestName &&
                     text.find_first_not_of(kNameLetters) == text.npos;
  if (!valid)
    refuse_value(path + ".function.name",
                 fmt::format("1 to {} letters, digits, or one of _-.:", kLongestName));
  const OrderedJson* strict = find_value(function, "strict");
  if (strict != nullptr && !strict->is_boolean())
    refuse_value(path + ".function.strict", "a boolean");
  const OrderedJson* parameters = find_value(function, "parameters");
  if (parameters != nullptr && !parameters->is_object())
    refuse_value(path + ".function.parameters", "a JSON schema");
}

}  // namespace

bool ToolRequest::strict(size_t index) const {
  const OrderedJson* strict = find_value(tools[index]["function"], "strict");
  return strict != nullptr && *strict == true;
}

bool ToolRequest::any_strict() const {
  for (size_t i = 0; i < tools.size(); ++i)
    if (strict(i)) return true;
  return false;
}

ToolRequest tool_request(const OrderedJson& request) {
  ToolRequest result;
  if (const OrderedJson* tools = find_value(request, "tools")) {
    if (!tools->is_array() || tools->size() > kMostTools)
      refuse_value("tools", fmt::format("a list of at most {} tools", kMostTools));
    result.tools = *tools;
    for (size_t i = 0; i < tools->size(); ++i)
      check_tool((*tools)[i], fmt::format("tools[{}]", i));
  }
  if (const OrderedJson* parallel = find_value(request, "parallel_tool_calls")) {
    if (!parallel->is_boolean()) refuse_value("parallel_tool_calls", "a boolean");
    result.parallel = parallel->get<bool>();
  }
  const OrderedJson* choice = find_value(request, "tool_choice");
  if (choice == nullptr || *choice == "auto") return result;
  if (*choice == "none") {
    result.tools = OrderedJson::array();
    return result;
  }
  if (!result.any()) refuse_value("tool_choice", "absent without tools");
  result.required = true;
  if (*choice == "required") return result;
  const OrderedJson* function = choice->is_object() ? find_value(*choice, "function") : nullptr;
  const OrderedJson* name =
      function != nullptr && function->is_object() ? find_value(*function, "name") : nullptr;
  if (name == nullptr || !name->is_string())
    refuse_value("tool_choice", "auto, none, required, or a function by its name");
  for (const OrderedJson& tool : result.tools) {
    if (tool["function"]["name"] != *name) continue;
    const OrderedJson only = tool;
    result.tools = OrderedJson::array({only});
    result.parallel = false;  // there is exactly the one call that the client has chosen
    return result;
  }
  refuse_value("tool_choice", "one of the tools");
}

}  // namespace walsh
