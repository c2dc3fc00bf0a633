#include "serve/messages_api.h"

#include <fmt/format.h>

#include <string>

#include "io/wide_integers.h"
#include "serve/translated_reply.h"

namespace walsh {
namespace {

Json usage_of(const Json& usage) {
  const int64_t cached =
      usage.is_object() ? count_at(usage.value("prompt_tokens_details", Json()), "cached_tokens")
                        : 0;
  return {{"input_tokens", count_at(usage, "prompt_tokens") - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", count_at(usage, "completion_tokens")}};
}

// Returns the stop_reason of a choice together with its stop_sequence, if there was one.
Json end_of(const Json& choice) {
  const std::string reason = choice.value("finish_reason", "stop");
  const Json stop = choice.value("stop_reason", Json());
  if (stop.is_string()) return {{"stop_reason", "stop_sequence"}, {"stop_sequence", stop}};
  const char* name = reason == "length" ? "max_tokens" : "end_turn";
  if (reason == "tool_calls") name = "tool_use";
  return {{"stop_reason", name}, {"stop_sequence", nullptr}};
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
                         {"input", arguments_object(function.at("arguments"))}});
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
    if (chat.contains("usage") && chat["usage"].is_object()) usage_ = chat["usage"];
    if (!begun_) {
      Json message = empty_message(chat);
      message["usage"] = usage_of(usage_);
      emit({{"type", "message_start"}, {"message", std::move(message)}});
    }
    begun_ = true;
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

  // Adds a delta to the open block, or opens a new block if its kind differs.
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
  std::string kind_;  // The open block has this kind; empty: none is open.
  int64_t index_ = 0;
  Json usage_, end_ = {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
};

}  // namespace

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
