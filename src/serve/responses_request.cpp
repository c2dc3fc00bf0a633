// Translates requests for responses to requests for chats.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "serve/api_error.h"
#include "serve/image_parts.h"
#include "serve/ordered_fields.h"
#include "serve/responses_api.h"
#include "serve/sampling_fields.h"

namespace walsh {
namespace {

const std::string& part_text(const OrderedJson& part, const std::string& path) {
  if (!part.is_object()) refuse_value(path, "an object");
  const std::string& type = text_value(part, "type", path);
  if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
      type != "summary_text")
    refuse_value(path, "a part of type input_text, input_image or output_text");
  return text_value(part, "text", path);
}

// Returns a string, or a list of text parts.
std::string plain_text(const OrderedJson& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_value(path, "a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i)
    text += part_text(content[i], fmt::format("{}[{}]", path, i));
  return text;
}

// Returns what plain_text does, or, with images, a list of parts of a chat.
OrderedJson content_of(const OrderedJson& content, const std::string& path) {
  if (!has_part(content, "input_image")) return plain_text(content, path);
  OrderedJson parts = OrderedJson::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (content[i].is_object() && is_text(content[i], "type", "input_image")) {
      // "image_url" is a string here.
      if (find_value(content[i], "file_id") != nullptr)
        refuse_value(at + ".file_id", "absent: nothing is stored between requests");
      parts.push_back({{"type", "image_url"},
                       {"image_url", {{"url", text_value(content[i], "image_url", at)}}}});
    } else {
      parts.push_back({{"type", "text"}, {"text", part_text(content[i], at)}});
    }
  }
  return parts;
}

void add_call(const OrderedJson& item, const std::string& path, OrderedJson& messages) {
  const OrderedJson call = {{"id", text_value(item, "call_id", path)},
                            {"type", "function"},
                            {"function",
                             {{"name", text_value(item, "name", path)},
                              {"arguments", text_value(item, "arguments", path)}}}};
  // Calls belong to the assistant's message before them.
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  if (!messages.back().contains("tool_calls")) messages.back()["tool_calls"] = OrderedJson::array();
  messages.back()["tool_calls"].push_back(call);
}

void add_item(const OrderedJson& item, const std::string& path, OrderedJson& messages) {
  if (!item.is_object()) refuse_value(path, "an object");
  const std::string type = item.contains("type") ? text_value(item, "type", path) : "message";
  const auto content = item.find("content");
  if (type == "function_call") {
    add_call(item, path, messages);
  } else if (type == "function_call_output") {
    const auto output = item.find("output");
    if (output == item.end()) refuse_value(path + ".output", "a string");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", text_value(item, "call_id", path)},
                        {"content", plain_text(*output, path + ".output")}});
  } else if (type == "message") {
    const std::string& role = text_value(item, "role", path);
    if (role != "system" && role != "developer" && role != "user" && role != "assistant")
      refuse_value(path + ".role", "user, assistant, system or developer");
    if (content == item.end()) refuse_value(path + ".content", "a string or a list of parts");
    messages.push_back({{"role", role}, {"content", content_of(*content, path + ".content")}});
  } else if (type != "reasoning") {  // templates leave reasoning out
    refuse_value(path, "a message, a function_call or a function_call_output");
  }
}

OrderedJson messages_of(const OrderedJson& request) {
  OrderedJson messages = OrderedJson::array();
  if (const auto system = request.find("instructions");
      system != request.end() && !system->is_null()) {
    if (!system->is_string()) refuse_value("instructions", "a string");
    messages.push_back({{"role", "system"}, {"content", *system}});
  }
  const auto input = request.find("input");
  if (input == request.end() || !(input->is_string() || input->is_array()))
    refuse_value("input", "a string or a list of items");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  for (size_t i = 0; i < input->size(); ++i)
    add_item((*input)[i], fmt::format("input[{}]", i), messages);
  if (messages.empty()) refuse_value("input", "a text or a list with a message");
  return messages;
}

// Translates functions, which lack the enclosing object here.
OrderedJson tools_of(const OrderedJson& list) {
  if (!list.is_array()) refuse_value("tools", "a list");
  OrderedJson tools = OrderedJson::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!list[i].is_object() || text_value(list[i], "type", path) != "function")
      refuse_value(path, "a tool of type \"function\"");
    OrderedJson function = {{"name", text_value(list[i], "name", path)}};
    for (const char* key : {"description", "parameters", "strict"})
      if (list[i].contains(key) && !list[i][key].is_null()) function[key] = list[i][key];
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

// Translates text.format to response_format.
OrderedJson format_of(const OrderedJson& text) {
  if (!text.is_object()) refuse_value("text", "an object");
  const auto found = text.find("format");
  if (found == text.end() || found->is_null()) return {{"type", "text"}};
  if (!found->is_object()) refuse_value("text.format", "an object");
  if (text_value(*found, "type", "text.format") != "json_schema") return *found;
  OrderedJson schema = *found;
  schema.erase("type");
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

}  // namespace

const FieldNames& responses_names() {
  static const FieldNames names = {{"messages", "input"},
                                   {"max_completion_tokens", "max_output_tokens"},
                                   {"response_format.json_schema", "text.format"},
                                   {"response_format", "text.format"},
                                   {"reasoning_effort", "reasoning.effort"},
                                   {".function", ""}};
  return names;
}

OrderedJson chat_of_responses(const OrderedJson& request) {
  if (!request.is_object()) throw ApiError(400, "the request must be an object");
  const auto has = [&](const char* key) {
    const auto found = request.find(key);
    return found != request.end() && !found->is_null();
  };
  for (const char* key : {"previous_response_id", "conversation", "prompt"})
    if (has(key)) refuse_value(key, "absent: nothing is stored between requests");
  if (has("background") && request["background"] != false) refuse_value("background", "false");
  OrderedJson chat = {{"messages", messages_of(request)}};
  copy_sampling(request, chat);
  for (const char* key : {"model", "stream", "parallel_tool_calls", "stop", "chat_template_kwargs"})
    if (has(key)) chat[key] = request[key];
  if (has("max_output_tokens")) chat["max_completion_tokens"] = request["max_output_tokens"];
  if (has("text")) chat["response_format"] = format_of(request["text"]);
  if (has("tools") && !request["tools"].empty()) chat["tools"] = tools_of(request["tools"]);
  if (has("tool_choice")) {
    const OrderedJson& choice = request["tool_choice"];
    chat["tool_choice"] = choice;
    if (choice.is_object() && choice.contains("name"))
      chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice["name"]}}}};
  }
  if (has("reasoning") && request["reasoning"].is_object() &&
      request["reasoning"].contains("effort") && request["reasoning"]["effort"].is_string())
    chat["reasoning_effort"] = request["reasoning"]["effort"];
  for (const char* key : {"reasoning_budget", "context_shift", "n_keep"})
    if (has(key)) chat[key] = request[key];
  chat["stream_options"] = {{"include_usage", true}};
  return chat;
}

}  // namespace walsh
