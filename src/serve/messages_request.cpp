// Translates requests for messages to requests for chats.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "io/wide_integers.h"
#include "serve/api_error.h"
#include "serve/image_parts.h"
#include "serve/messages_api.h"
#include "serve/messages_tools.h"
#include "serve/ordered_fields.h"
#include "serve/sampling_fields.h"

namespace walsh {
namespace {

std::string type_of(const OrderedJson& block, const std::string& path) {
  if (!block.is_object()) refuse_value(path, "an object");
  return text_value(block, "type", path);
}

// Returns a string, or a list of text blocks.
std::string plain_text(const OrderedJson& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_value(path, "a string or a list of blocks");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (type_of(content[i], at) != "text") refuse_value(at, "a block of type \"text\"");
    text += text_value(content[i], "text", at);
  }
  return text;
}

// Returns the image of a block as a part of a chat.
OrderedJson image_of(const OrderedJson& block, const std::string& path) {
  const OrderedJson* source = find_value(block, "source");
  if (source == nullptr || type_of(*source, path + ".source") != "base64")
    refuse_value(path + ".source", "of type \"base64\": this server fetches nothing");
  return image_part(text_value(*source, "data", path + ".source"),
                    text_value(*source, "media_type", path + ".source"));
}

// A message with tool results becomes several messages.
void add_blocks(const OrderedJson& content, const std::string& role, const std::string& path,
                OrderedJson& messages) {
  std::string text, reasoning;
  OrderedJson calls = OrderedJson::array(), parts = OrderedJson::array();
  const bool shows = has_part(content, "image");
  for (size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& block = content[i];
    const std::string at = fmt::format("{}[{}]", path, i), type = type_of(block, at);
    if (type == "text") {
      text += text_value(block, "text", at);
      if (shows) parts.push_back({{"type", "text"}, {"text", block["text"]}});
    } else if (type == "image") {
      parts.push_back(image_of(block, at));
    } else if (type == "thinking") {
      reasoning += text_value(block, "thinking", at);
    } else if (type == "tool_use") {
      const OrderedJson input = block.value("input", OrderedJson::object());
      calls.push_back(
          {{"id", text_value(block, "id", at)},
           {"type", "function"},
           {"function",
            {{"name", text_value(block, "name", at)}, {"arguments", dump_exact(input)}}}});
    } else if (type == "tool_result") {
      const auto result = block.find("content");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", text_value(block, "tool_use_id", at)},
                          {"content", result == block.end() || result->is_null()
                                          ? ""
                                          : plain_text(*result, at + ".content")}});
    } else {
      refuse_value(at, "a block of type text, image, tool_use or tool_result");
    }
  }
  if (text.empty() && !shows && calls.empty() && !content.empty() && role == "user") return;
  OrderedJson message = {{"role", role}, {"content", shows ? parts : OrderedJson(text)}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages.push_back(std::move(message));
}

OrderedJson messages_of(const OrderedJson& request) {
  OrderedJson messages = OrderedJson::array();
  if (const auto system = request.find("system"); system != request.end() && !system->is_null())
    messages.push_back({{"role", "system"}, {"content", plain_text(*system, "system")}});
  const auto list = request.find("messages");
  if (list == request.end() || !list->is_array() || list->empty())
    refuse_value("messages", "a list of messages");
  for (size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& message = (*list)[i];
    const std::string path = fmt::format("messages[{}]", i);
    if (!message.is_object()) refuse_value(path, "an object");
    const std::string& role = text_value(message, "role", path);
    if (role != "user" && role != "assistant" && role != "system")
      refuse_value(path + ".role", "\"user\" or \"assistant\"");
    const auto content = message.find("content");
    if (content == message.end()) refuse_value(path + ".content", "a string or a list of blocks");
    if (content->is_array()) {
      add_blocks(*content, role, path + ".content", messages);
    } else {
      messages.push_back({{"role", role}, {"content", plain_text(*content, path + ".content")}});
    }
  }
  return messages;
}

OrderedJson tools_of(const OrderedJson& list) {
  if (!list.is_array()) refuse_value("tools", "a list");
  OrderedJson tools = OrderedJson::array();
  for (size_t i = 0; i < list.size(); ++i)
    tools.push_back(
        {{"type", "function"}, {"function", function_of(list[i], fmt::format("tools[{}]", i))}});
  return tools;
}

void set_tool_choice(const OrderedJson& choice, OrderedJson& chat) {
  const std::string type = type_of(choice, "tool_choice");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", text_value(choice, "name", "tool_choice")}}}};
  } else {
    refuse_value("tool_choice.type", "auto, any, tool or none");
  }
  if (choice.contains("disable_parallel_tool_use") &&
      choice["disable_parallel_tool_use"].is_boolean())
    chat["parallel_tool_calls"] = !choice["disable_parallel_tool_use"].get<bool>();
}

// Returns whether the answer continues a final message of the assistant.
bool continues(const OrderedJson& messages) {
  if (messages.empty()) return false;
  const OrderedJson& last = messages.back();
  return last["role"] == "assistant" && last["content"] != "" && !last.contains("tool_calls");
}

// Translates output_config.format, or the older output_format, to response_format.
void set_format(const OrderedJson& format, const std::string& path, OrderedJson& chat) {
  if (chat.contains("response_format"))
    refuse_value(path, "absent if 'output_config.format' is given");
  if (type_of(format, path) != "json_schema") refuse_value(path + ".type", "json_schema");
  const OrderedJson* schema = find_value(format, "schema");
  if (schema == nullptr || !schema->is_object()) refuse_value(path + ".schema", "a JSON schema");
  chat["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *schema}}}};
}

void set_output(const OrderedJson& config, OrderedJson& chat) {
  if (!config.is_object()) refuse_value("output_config", "an object");
  if (const OrderedJson* format = find_value(config, "format"))
    set_format(*format, "output_config.format", chat);
  if (find_value(config, "effort") == nullptr) return;
  const std::string effort = text_value(config, "effort", "output_config");
  if (effort != "low" && effort != "medium" && effort != "high" && effort != "xhigh" &&
      effort != "max")
    refuse_value("output_config.effort", "low, medium, high, xhigh or max");
  // Templates know no level above high.
  chat["reasoning_effort"] = effort == "xhigh" || effort == "max" ? "high" : effort;
}

// Sets the template variable for reasoning, unless the request sets it itself.
void set_thinking(const OrderedJson& thinking, OrderedJson& chat) {
  const std::string type = type_of(thinking, "thinking");
  OrderedJson& variables = chat["chat_template_kwargs"];
  if (variables.is_object() && variables.contains("enable_thinking")) return;
  if (!variables.is_null() && !variables.is_object())
    refuse_value("chat_template_kwargs", "an object");
  variables["enable_thinking"] = type != "disabled";
  if (const OrderedJson* budget = find_value(thinking, "budget_tokens"))
    chat["reasoning_budget"] = *budget;
}

}  // namespace

OrderedJson chat_of_messages(const OrderedJson& request, bool only_count) {
  if (!request.is_object()) throw ApiError(400, "the request must be an object");
  OrderedJson chat = {{"messages", messages_of(request)}};
  const auto has = [&](const char* key) { return find_value(request, key) != nullptr; };
  if (has("mcp_servers") && request["mcp_servers"] != OrderedJson::array())
    refuse_value("mcp_servers", "absent: this server calls no others");
  if (has("tools")) chat["tools"] = tools_of(request["tools"]);
  if (continues(chat["messages"])) chat["continue_final_message"] = true;
  if (has("chat_template_kwargs")) chat["chat_template_kwargs"] = request["chat_template_kwargs"];
  if (has("thinking")) set_thinking(request["thinking"], chat);
  if (has("output_config")) set_output(request["output_config"], chat);
  if (has("output_format")) set_format(request["output_format"], "output_format", chat);
  if (chat.contains("continue_final_message") && chat.contains("response_format"))
    refuse_value("output_config.format",
                 "absent if the last message is the assistant's, which the answer continues");
  if (only_count) return chat;
  if (!has("max_tokens") || !request["max_tokens"].is_number_integer() || request["max_tokens"] < 1)
    refuse_value("max_tokens", "an integer of at least 1");
  if (has("tool_choice")) set_tool_choice(request["tool_choice"], chat);
  copy_sampling(request, chat);
  for (const char* key : {"model", "max_tokens", "stream", "context_shift", "n_keep"})
    if (has(key)) chat[key] = request[key];
  if (has("stop_sequences")) chat["stop"] = request["stop_sequences"];
  chat["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  return chat;
}

const FieldNames& messages_names() {
  static const FieldNames names = {{"stop", "stop_sequences"},
                                   {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
                                   {"response_format.json_schema", "output_config.format"},
                                   {"response_format", "output_config.format"},
                                   {"reasoning_effort", "output_config.effort"},
                                   {"reasoning_budget", "thinking.budget_tokens"},
                                   {".function.parameters", ".input_schema"},
                                   {".function", ""}};
  return names;
}

}  // namespace walsh
