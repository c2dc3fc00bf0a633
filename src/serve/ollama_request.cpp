// Translates Ollama's requests.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "io/wide_integers.h"
#include "serve/image_parts.h"
#include "serve/ollama_api.h"
#include "serve/ordered_fields.h"
#include "serve/sampling_fields.h"

namespace walsh {
namespace {

bool is_empty(const OrderedJson* value) {
  return value == nullptr || value->empty() || *value == "";
}

// Returns the content of a message with the images of an object, files in base64, in front.
OrderedJson with_images(const OrderedJson& content, const OrderedJson& object,
                        const std::string& path) {
  const OrderedJson* images = find_value(object, "images");
  if (is_empty(images)) return content;
  if (!images->is_array()) refuse_value(path + "images", "a list of images in base64");
  if (!content.is_string()) refuse_value(path + "content", "a string");
  OrderedJson parts = OrderedJson::array();
  for (size_t i = 0; i < images->size(); ++i) {
    if (!(*images)[i].is_string())
      refuse_value(fmt::format("{}images[{}]", path, i), "an image in base64");
    parts.push_back(image_part((*images)[i].get_ref<const std::string&>()));
  }
  if (content != "") parts.push_back({{"type", "text"}, {"text", content}});
  return parts;
}

// Gives ids to the calls of a conversation, which has none.
struct Calls {
  std::string add(const std::string& name) {
    return latest[name] = fmt::format("{:09}", ++count);  // Mistral's templates accept nine digits
  }

  int64_t count = 0;
  std::map<std::string, std::string> latest;  // the id of the latest call by the name of its tool
};

// Translates the calls of a message, whose arguments are objects.
OrderedJson calls_of(const OrderedJson& list, const std::string& path, Calls& calls) {
  if (!list.is_array()) refuse_value(path, "a list");
  OrderedJson result = OrderedJson::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const OrderedJson* function = list[i].is_object() ? find_value(list[i], "function") : nullptr;
    if (function == nullptr || !function->is_object()) refuse_value(at + ".function", "an object");
    const std::string& name = text_value(*function, "name", at + ".function");
    result.push_back(
        {{"id", calls.add(name)},
         {"type", "function"},
         {"function",
          {{"name", name},
           {"arguments", dump_exact(function->value("arguments", OrderedJson::object()))}}}});
  }
  return result;
}

OrderedJson messages_of(const OrderedJson& request) {
  const OrderedJson* list = find_value(request, "messages");
  if (list == nullptr || !list->is_array()) refuse_value("messages", "a list of messages");
  OrderedJson messages = OrderedJson::array();
  Calls calls;
  for (size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& given = (*list)[i];
    const std::string path = fmt::format("messages[{}]", i);
    if (!given.is_object()) refuse_value(path, "an object");
    OrderedJson message = {{"role", text_value(given, "role", path)}};
    const OrderedJson* content = find_value(given, "content");
    message["content"] =
        with_images(content == nullptr ? OrderedJson("") : *content, given, path + ".");
    if (const OrderedJson* thinking = find_value(given, "thinking"); !is_empty(thinking))
      message["reasoning_content"] = *thinking;
    if (const OrderedJson* list = find_value(given, "tool_calls"); !is_empty(list))
      message["tool_calls"] = calls_of(*list, path + ".tool_calls", calls);
    if (message["role"] == "tool") {
      const OrderedJson* name = find_value(given, "tool_name");
      const bool named = name != nullptr && name->is_string();
      message["tool_call_id"] = named ? calls.latest[name->get<std::string>()] : std::string();
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

// Returns the text of `key`; empty if there is none.
std::string text_or_nothing(const OrderedJson& request, const char* key) {
  const OrderedJson* value = find_value(request, key);
  if (value == nullptr) return "";
  if (!value->is_string()) refuse_value(key, "a string");
  return value->get<std::string>();
}

OrderedJson prompt_messages(const OrderedJson& request) {
  OrderedJson messages = OrderedJson::array();
  const std::string system = text_or_nothing(request, "system");
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"},
                      {"content", with_images(text_or_nothing(request, "prompt"), request, "")}});
  return messages;
}

// Sets the format, which is "json" or a schema.
void set_format(const OrderedJson& format, OrderedJson& result) {
  if (format == "") return;
  if (format == "json") {
    result["response_format"] = {{"type", "json_object"}};
  } else if (format.is_object()) {
    result["response_format"] = {{"type", "json_schema"},
                                 {"json_schema", {{"name", "format"}, {"schema", format}}}};
  } else {
    refuse_value("format", "\"json\" or a JSON schema");
  }
}

// Sets what chats and completions share. Ollama streams by default.
void set_common(const OrderedJson& request, OrderedJson& result) {
  const OrderedJson* stream = find_value(request, "stream");
  result["stream"] = stream == nullptr ? OrderedJson(true) : *stream;
  result["stream_options"] = {{"include_usage", true}};
  result["max_tokens"] = -1;
  if (const OrderedJson* format = find_value(request, "format")) set_format(*format, result);
  const OrderedJson* options = find_value(request, "options");
  if (options == nullptr) return;
  if (!options->is_object()) refuse_value("options", "an object");
  copy_sampling(*options, result);
  if (const OrderedJson* stop = find_value(*options, "stop")) result["stop"] = *stop;
  if (const OrderedJson* keep = find_value(*options, "num_keep")) result["n_keep"] = *keep;
  for (const char* key : {"reasoning_budget", "context_shift"})
    if (const OrderedJson* value = find_value(*options, key)) result[key] = *value;
  // Both -1 and -2 mean "until the end".
  if (const OrderedJson* most = find_value(*options, "num_predict"))
    result["max_tokens"] = *most == -2 ? OrderedJson(-1) : *most;
}

// Sets whether to think: true, false, or how much.
void set_thinking(const OrderedJson& think, OrderedJson& chat) {
  const bool level = think == "low" || think == "medium" || think == "high";
  if (!level && !think.is_boolean())
    refuse_value("think", "true, false, \"low\", \"medium\" or \"high\"");
  if (level) chat["reasoning_effort"] = think;
  chat["chat_template_kwargs"] = {{"enable_thinking", level || think.get<bool>()}};
}

}  // namespace

bool only_loads(const OrderedJson& request, OllamaForm form) {
  return is_empty(find_value(request, form == OllamaForm::chat ? "messages" : "prompt"));
}

OrderedJson chat_of_ollama(const OrderedJson& request, OllamaForm form) {
  OrderedJson chat = {
      {"messages", form == OllamaForm::chat ? messages_of(request) : prompt_messages(request)}};
  if (form == OllamaForm::generate) {
    if (!text_or_nothing(request, "template").empty())
      refuse_value("template", "absent: the model's own is used");
  }
  if (const OrderedJson* tools = find_value(request, "tools"); !is_empty(tools))
    chat["tools"] = *tools;
  if (const OrderedJson* think = find_value(request, "think")) set_thinking(*think, chat);
  set_common(request, chat);
  return chat;
}

OrderedJson completion_of_ollama(const OrderedJson& request) {
  if (!is_empty(find_value(request, "images")))
    refuse_value("images", "empty or absent with \"raw\", or without a chat template");
  const std::string system = text_or_nothing(request, "system");
  const std::string prompt = text_or_nothing(request, "prompt");
  OrderedJson completion = {{"prompt", system.empty() ? prompt : system + "\n\n" + prompt}};
  if (const OrderedJson* suffix = find_value(request, "suffix")) completion["suffix"] = *suffix;
  set_common(request, completion);
  return completion;
}

const FieldNames& ollama_names() {
  static const FieldNames names = {{"max_tokens", "options.num_predict"},
                                   {"stop", "options.stop"},
                                   {"n_keep", "options.num_keep"},
                                   {"reasoning_budget", "options.reasoning_budget"},
                                   {"context_shift", "options.context_shift"},
                                   {"response_format.json_schema.schema", "format"},
                                   {"response_format.json_schema", "format"},
                                   {"response_format", "format"},
                                   {"reasoning_effort", "think"}};
  return names;
}

}  // namespace walsh
