#include "serve/messages_api.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "serve/api_error.h"
#include "serve/ordered_fields.h"
#include "serve/translated_reply.h"

namespace walsh {
namespace {

std::string type_of(const OrderedJson& block, const std::string& path) {
  if (!block.is_object()) refuse_value(path, "an object");
  return text_value(block, "type", path);
}

// A string, or a list of blocks that are all text.
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

// One message becomes several where results of tools stand in it.
void add_blocks(const OrderedJson& content, const std::string& role, const std::string& path,
                OrderedJson& messages) {
  std::string text, reasoning;
  OrderedJson calls = OrderedJson::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& block = content[i];
    const std::string at = fmt::format("{}[{}]", path, i), type = type_of(block, at);
    if (type == "text") {
      text += text_value(block, "text", at);
    } else if (type == "thinking") {
      reasoning += text_value(block, "thinking", at);
    } else if (type == "tool_use") {
      const OrderedJson input = block.value("input", OrderedJson::object());
      calls.push_back(
          {{"id", text_value(block, "id", at)},
           {"type", "function"},
           {"function", {{"name", text_value(block, "name", at)}, {"arguments", input.dump()}}}});
    } else if (type == "tool_result") {
      const auto result = block.find("content");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", text_value(block, "tool_use_id", at)},
                          {"content", result == block.end() || result->is_null()
                                          ? ""
                                          : plain_text(*result, at + ".content")}});
    } else {
      refuse_value(at, "a block of type text, tool_use or tool_result");
    }
  }
  if (text.empty() && calls.empty() && !content.empty() && role == "user") return;
  OrderedJson message = {{"role", role}, {"content", text}};
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
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!list[i].is_object()) refuse_value(path, "an object");
    OrderedJson function = {{"name", text_value(list[i], "name", path)}};
    if (list[i].contains("description")) function["description"] = list[i]["description"];
    if (list[i].contains("input_schema")) function["parameters"] = list[i]["input_schema"];
    if (list[i].contains("strict")) function["strict"] = list[i]["strict"];
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
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

// Whether the answer goes on where a last message of the assistant ends.
bool continues(const OrderedJson& messages) {
  if (messages.empty()) return false;
  const OrderedJson& last = messages.back();
  return last["role"] == "assistant" && last["content"] != "" && !last.contains("tool_calls");
}

Json usage_of(const Json& usage) {
  const auto count = [](const Json& object, const char* key) -> int64_t {
    return object.is_object() ? object.value(key, int64_t{0}) : 0;
  };
  const int64_t cached =
      usage.is_object() ? count(usage.value("prompt_tokens_details", Json()), "cached_tokens") : 0;
  return {{"input_tokens", count(usage, "prompt_tokens") - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", count(usage, "completion_tokens")}};
}

// The reason of a choice's end, and the stop sequence if it was one.
Json end_of(const Json& choice) {
  const std::string reason = choice.value("finish_reason", "stop");
  const Json stop = choice.value("stop_reason", Json());
  if (stop.is_string()) return {{"stop_reason", "stop_sequence"}, {"stop_sequence", stop}};
  const char* name = reason == "length" ? "max_tokens" : "end_turn";
  if (reason == "tool_calls") name = "tool_use";
  return {{"stop_reason", name}, {"stop_sequence", nullptr}};
}

Json open_object(const std::string& text) {
  Json object = Json::parse(text, nullptr, false);
  return object.is_object() ? object : Json::object();
}

class MessagesReply : public TranslatedReply {
 public:
  using TranslatedReply::TranslatedReply;

 protected:
  Json whole(const Json& chat) override {
    const Json& choice = chat.at("choices").at(0);
    const Json& said = choice.at("message");
    Json content = Json::array();
    if (const Json text = said.value("reasoning_content", Json()); text.is_string())
      content.push_back({{"type", "thinking"}, {"thinking", text}, {"signature", ""}});
    if (const Json text = said.value("content", Json()); text.is_string() && text != "")
      content.push_back({{"type", "text"}, {"text", text}});
    for (const Json& call : said.value("tool_calls", Json::array())) {
      const Json& function = call.at("function");
      content.push_back({{"type", "tool_use"},
                         {"id", call.at("id")},
                         {"name", function.at("name")},
                         {"input", open_object(function.at("arguments"))}});
    }
    Json message = empty_message(chat);
    message["content"] = std::move(content);
    message.update(end_of(choice));
    message["usage"] = usage_of(chat.value("usage", Json()));
    return message;
  }

  Json error(const Json& chat) override { return messages_error(chat); }
  void broken(const Json& error) override { emit(messages_error(error)); }

  void chunk(const Json& chat) override {
    if (!begun_) emit({{"type", "message_start"}, {"message", empty_message(chat)}});
    begun_ = true;
    if (chat.contains("usage") && chat["usage"].is_object()) usage_ = chat["usage"];
    if (!chat.contains("choices") || chat["choices"].empty()) return;
    const Json& choice = chat["choices"][0];
    const Json delta = choice.value("delta", Json::object());
    if (const Json text = delta.value("reasoning_content", Json()); text.is_string() && text != "")
      put("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}},
          {{"type", "thinking_delta"}, {"thinking", text}});
    if (const Json text = delta.value("content", Json()); text.is_string() && text != "")
      put("text", {{"type", "text"}, {"text", ""}}, {{"type", "text_delta"}, {"text", text}});
    for (const Json& call : delta.value("tool_calls", Json::array()))
      put_call(call);
    if (const Json reason = choice.value("finish_reason", Json()); reason.is_string())
      end_ = end_of(choice);
  }

  void done() override {
    close();
    emit({{"type", "message_delta"}, {"delta", end_}, {"usage", usage_of(usage_)}});
    emit({{"type", "message_stop"}});
  }

 private:
  Json empty_message(const Json& chat) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", chat.value("model", "")},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", usage_of(Json())}};
  }

  // Part of a block, in a new one if the last one is of another kind.
  void put(const std::string& kind, const Json& block, const Json& delta) {
    if (kind != kind_) {
      close();
      kind_ = kind;
      emit({{"type", "content_block_start"}, {"index", index_}, {"content_block", block}});
    }
    emit({{"type", "content_block_delta"}, {"index", index_}, {"delta", delta}});
  }

  void put_call(const Json& call) {
    const Json function = call.value("function", Json::object());
    const std::string name = function.value("name", "");
    put(fmt::format("tool {}", call.value("index", 0)),
        {{"type", "tool_use"},
         {"id", call.value("id", "")},
         {"name", name},
         {"input", Json::object()}},
        {{"type", "input_json_delta"}, {"partial_json", function.value("arguments", "")}});
  }

  void close() {
    if (kind_.empty()) return;
    emit({{"type", "content_block_stop"}, {"index", index_}});
    ++index_;
    kind_.clear();
  }

  const std::string id_ = new_name("msg_");
  bool begun_ = false;
  std::string kind_;  // of the open block; empty: none
  int64_t index_ = 0;
  Json usage_, end_ = {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
};

}  // namespace

OrderedJson chat_of_messages(const OrderedJson& request, bool only_count) {
  if (!request.is_object()) throw ApiError(400, "the request must be an object");
  OrderedJson chat = {{"messages", messages_of(request)}};
  const auto has = [&](const char* key) {
    const auto found = request.find(key);
    return found != request.end() && !found->is_null();
  };
  if (has("tools")) chat["tools"] = tools_of(request["tools"]);
  if (continues(chat["messages"])) chat["continue_final_message"] = true;
  if (only_count) return chat;
  if (!has("max_tokens") || !request["max_tokens"].is_number_integer() || request["max_tokens"] < 1)
    refuse_value("max_tokens", "an integer of at least 1");
  if (has("tool_choice")) set_tool_choice(request["tool_choice"], chat);
  for (const char* key : {"model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed",
                          "stream", "chat_template_kwargs"})
    if (has(key)) chat[key] = request[key];
  if (has("stop_sequences")) chat["stop"] = request["stop_sequences"];
  chat["stream_options"] = {{"include_usage", true}};
  return chat;
}

const FieldNames& messages_names() {
  static const FieldNames names = {{"stop", "stop_sequences"},
                                   {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
                                   {".function.parameters", ".input_schema"},
                                   {".function", ""}};
  return names;
}

std::shared_ptr<HttpReply> messages_reply(std::shared_ptr<HttpReply> reply) {
  return std::make_shared<MessagesReply>(std::move(reply));
}

Json messages_error(const Json& error) {
  const Json inner = error.value("error", Json::object());
  const std::string type = inner.value("type", "api_error");
  const bool overloaded = type == "unavailable_error";
  return {{"type", "error"},
          {"error",
           {{"type", overloaded               ? "overloaded_error"
                     : type == "server_error" ? "api_error"
                                              : type},
            {"message", inner.value("message", "")}}}};
}

}  // namespace walsh
