#include "serve/tool_request.h"

#include <fmt/format.h>

#include "serve/api_error.h"

namespace walsh {
namespace {

constexpr size_t kMostTools = 128, kLongestName = 64;

[[noreturn]] void refuse(const std::string& path, const std::string& expected) {
  throw ApiError(400, fmt::format("'{}' must be {}", path, expected), path);
}

const OrderedJson* find(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void check_tool(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object() || tool.value("type", "function") != "function" ||
      !tool.contains("function") || !tool["function"].is_object())
    refuse(path, "a tool of type \"function\" with a \"function\"");
  const OrderedJson& function = tool["function"];
  const OrderedJson* name = find(function, "name");
  const std::string text = name != nullptr && name->is_string() ? name->get<std::string>() : "";
  const bool valid = !text.empty() && text.size() <= kLongestName &&
                     text.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789_-.:") == text.npos;
  if (!valid)
    refuse(path + ".function.name",
           fmt::format("1 to {} letters, digits, or one of _-.:", kLongestName));
  const OrderedJson* parameters = find(function, "parameters");
  if (parameters != nullptr && !parameters->is_object())
    refuse(path + ".function.parameters", "a JSON schema");
}

}  // namespace

ToolRequest tool_request(const OrderedJson& request) {
  ToolRequest result;
  if (const OrderedJson* tools = find(request, "tools")) {
    if (!tools->is_array() || tools->size() > kMostTools)
      refuse("tools", fmt::format("a list of at most {} tools", kMostTools));
    result.tools = *tools;
    for (size_t i = 0; i < tools->size(); ++i)
      check_tool((*tools)[i], fmt::format("tools[{}]", i));
  }
  if (const OrderedJson* parallel = find(request, "parallel_tool_calls")) {
    if (!parallel->is_boolean()) refuse("parallel_tool_calls", "a boolean");
    result.parallel = parallel->get<bool>();
  }
  const OrderedJson* choice = find(request, "tool_choice");
  if (choice == nullptr || *choice == "auto") return result;
  if (*choice == "none") {
    result.tools = OrderedJson::array();
    return result;
  }
  if (!result.any()) refuse("tool_choice", "absent without tools");
  result.required = true;
  if (*choice == "required") return result;
  const OrderedJson* function = choice->is_object() ? find(*choice, "function") : nullptr;
  const OrderedJson* name =
      function != nullptr && function->is_object() ? find(*function, "name") : nullptr;
  if (name == nullptr || !name->is_string())
    refuse("tool_choice", "auto, none, required, or a function by its name");
  for (const OrderedJson& tool : result.tools) {
    if (tool["function"]["name"] != *name) continue;
    const OrderedJson only = tool;
    result.tools = OrderedJson::array({only});
    return result;
  }
  refuse("tool_choice", "one of the tools");
}

}  // namespace walsh
