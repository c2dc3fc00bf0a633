#include "serve/chat_prompt.h"

#include <fmt/format.h>

#include "io/wide_integers.h"
#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

// Refuses messages without a text before the template does, which cannot name them. The content of
// other roles may be absent or an object.
void check_content(const OrderedJson& message, const std::string& path) {
  const std::string& role = message["role"].get_ref<const std::string&>();
  if (role != "user" && role != "system" && role != "developer") return;
  const auto content = message.find("content");
  if (content == message.end() || !(content->is_string() || content->is_array()))
    refuse_value(path + ".content", "a string or a list of parts");
}

// Returns the text of a part.
const std::string& part_text(const OrderedJson& part, const std::string& path) {
  if (!part.is_object() || !is_text(part, "type", "text"))
    refuse_value(path, "a part of type \"text\"");
  return text_value(part, "text", path);
}

// Joins a list of text parts to one text. Beside images (take_images) parts stay as they are.
void join_parts(OrderedJson& message, const std::string& path) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  std::string text;
  bool shows = false;
  for (size_t i = 0; i < content->size(); ++i) {
    const OrderedJson& part = (*content)[i];
    const bool image = part.is_object() && is_text(part, "type", "image");
    if (!image) text += part_text(part, fmt::format("{}.content[{}]", path, i));
    shows = shows || image;
  }
  if (!shows) *content = text;
}

// Parses the arguments of calls, which clients send as strings. `values` limits the JSON values of
// all of them.
void open_arguments(OrderedJson& message, int64_t& values) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (OrderedJson& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    OrderedJson& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    try {
      *arguments = parse_exact_json(arguments->get_ref<const std::string&>(), "arguments",
                                    {.values = &values});
    } catch (const Error&) {  // the template gets the client's string
      if (values < 0) refuse_value("messages", "with fewer values in the arguments of its calls");
    }
  }
}

// `developer` says whether the template knows this role. Other templates would refuse or drop its
// messages, so it becomes "system", its name in OpenAI's older models.
OrderedJson messages_of(OrderedJson& request, bool developer) {
  const auto messages = request.find("messages");
  if (messages == request.end() || !messages->is_array() || messages->empty())
    refuse_value("messages", "a list of messages");
  OrderedJson result = std::move(*messages);
  int64_t values = kMostBodyValues;
  for (size_t i = 0; i < result.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    OrderedJson& message = result[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse_value(path, "an object with a \"role\"");
    check_content(message, path);
    if (!developer && message["role"] == "developer") message["role"] = "system";
    join_parts(message, path);
    open_arguments(message, values);
    // Clients omit the content of messages that call tools, but many templates read it.
    if (message.contains("tool_calls") &&
        (!message.contains("content") || message["content"].is_null()))
      message["content"] = "";
  }
  return result;
}

bool flag(const OrderedJson& request, const char* key, bool otherwise) {
  const auto found = request.find(key);
  if (found == request.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) refuse_value(key, "a boolean");
  return found->get<bool>();
}

const OrderedJson* list(const OrderedJson& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || found->is_null()) return nullptr;
  if (!found->is_array()) refuse_value(key, "a list");
  return found->empty() ? nullptr : &*found;
}

std::string apply(const ChatTemplate& chat_template, const OrderedJson& variables,
                  OrderedJson& request) {
  ChatOptions options;
  options.variables = variables;
  if (!is_text(request, "tool_choice", "none")) options.tools = list(request, "tools");
  options.documents = list(request, "documents");
  if (flag(request, "continue_final_message", false)) options.continue_field = "content";
  options.add_generation_prompt =
      flag(request, "add_generation_prompt", options.continue_field.empty());
  // Passes OpenAI's field on to templates that have a variable for it.
  if (const auto effort = request.find("reasoning_effort");
      effort != request.end() && !effort->is_null())
    options.variables["reasoning_effort"] = *effort;
  if (const auto more = request.find("chat_template_kwargs");
      more != request.end() && !more->is_null()) {
    if (!more->is_object()) refuse_value("chat_template_kwargs", "an object");
    options.variables.update(*more);
  }
  const std::string& source = chat_template.source(options.tools != nullptr);
  // SmolLM3's templates call the list of tools xml_tools, for calls written as JSON.
  if (options.tools != nullptr && source.find("xml_tools") != source.npos &&
      !options.variables.contains("xml_tools"))
    options.variables["xml_tools"] = *options.tools;
  const bool developer = source.find("developer") != source.npos;
  try {
    return chat_template.apply(messages_of(request, developer), options);
  } catch (const Error& e) {
    throw ApiError(400, e.what(), "messages");
  }
}

}  // namespace

ChatPrompt make_chat_prompt(const ChatTemplate& chat_template, OrderedJson variables) {
  return [&chat_template, variables = std::move(variables)](OrderedJson& request) {
    return apply(chat_template, variables, request);
  };
}

}  // namespace walsh
