#include "serve/responses_api.h"

#include <ctime>
#include <string>
#include <utility>

#include "serve/translated_reply.h"

namespace walsh {
namespace {

Json part(const Json& object, const char* key) {
  return object.is_object() ? object.value(key, Json()) : Json();
}

Json usage_of(const Json& usage) {
  return {{"input_tokens", count_at(usage, "prompt_tokens")},
          {"input_tokens_details",
           {{"cached_tokens", count_at(part(usage, "prompt_tokens_details"), "cached_tokens")}}},
          {"output_tokens", count_at(usage, "completion_tokens")},
          {"output_tokens_details",
           {{"reasoning_tokens",
             count_at(part(usage, "completion_tokens_details"), "reasoning_tokens")}}},
          {"total_tokens", count_at(usage, "total_tokens")}};
}

Json text_part(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

// Returns the fields of the request that the response repeats.
Json described(const OrderedJson& request) {
  Json response = {{"background", false},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"instructions", nullptr},
                   {"max_output_tokens", nullptr},
                   {"metadata", Json::object()},
                   {"parallel_tool_calls", true},
                   {"previous_response_id", nullptr},
                   {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                   {"store", false},
                   {"temperature", nullptr},
                   {"text", {{"format", {{"type", "text"}}}}},
                   {"tool_choice", "auto"},
                   {"tools", Json::array()},
                   {"top_p", nullptr},
                   {"truncation", "disabled"},
                   {"user", nullptr}};
  for (const char* key :
       {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning",
        "temperature", "text", "tool_choice", "tools", "top_p", "user"})
    if (const auto found = request.find(key); found != request.end() && !found->is_null())
      response[key] = *found;
  return response;
}

class ResponsesReply : public TranslatedReply {
 public:
  ResponsesReply(std::shared_ptr<HttpReply> reply, const OrderedJson& request)
      : TranslatedReply(std::move(reply)), response_(described(request)) {
    response_["id"] = new_name("resp_");
    response_["object"] = "response";
    response_["created_at"] = std::time(nullptr);
    response_["status"] = "in_progress";
    response_["output"] = Json::array();
    response_["usage"] = nullptr;
  }

 protected:
  Json whole(const Json& chat) override {
    response_["model"] = chat.value("model", "");
    const Json& choice = chat.at("choices").at(0);
    const Json& said = choice.at("message");
    Json& output = response_["output"];
    if (const Json text = part(said, "reasoning_content"); text.is_string())
      output.push_back(reasoning_item(text));
    if (const Json text = part(said, "content"); text.is_string() && text != "")
      output.push_back(message_item(text));
    for (const Json& call : said.value("tool_calls", Json::array()))
      output.push_back(
          call_item(call.at("id"), call["function"].at("name"), call["function"].at("arguments")));
    const std::string reason = choice.value("finish_reason", "stop");
    if (reason == "length" && !output.empty()) output.back()["status"] = "incomplete";
    end(reason);
    response_["usage"] = usage_of(part(chat, "usage"));
    return response_;
  }

  void chunk(const Json& chat) override {
    if (!response_.contains("model")) {
      response_["model"] = chat.value("model", "");
      tell("response.created", {{"response", response_}});
      tell("response.in_progress", {{"response", response_}});
    }
    if (const Json usage = part(chat, "usage"); usage.is_object()) usage_ = usage;
    if (!chat.contains("choices") || chat["choices"].empty()) return;
    const Json& choice = chat["choices"][0];
    const Json delta = choice.value("delta", Json::object());
    if (const Json text = part(delta, "reasoning_content"); text.is_string() && text != "")
      put_text("reasoning", text);
    if (const Json text = part(delta, "content"); text.is_string() && text != "")
      put_text("message", text);
    for (const Json& call : delta.value("tool_calls", Json::array()))
      put_call(call);
    if (const Json reason = part(choice, "finish_reason"); reason.is_string()) reason_ = reason;
  }

  void broken(const Json& error) override {
    close();
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"},
                          {"message", error["error"].value("message", "")}};
    tell("response.failed", {{"response", response_}});
  }

  void done() override {
    close(reason_ == "length");
    end(reason_);
    response_["usage"] = usage_of(usage_);
    tell(reason_ == "length" ? "response.incomplete" : "response.completed",
         {{"response", response_}});
  }

 private:
  static Json message_item(const std::string& text) {
    return {{"type", "message"},
            {"id", new_name("msg_")},
            {"status", "completed"},
            {"role", "assistant"},
            {"content", Json::array({text_part(text)})}};
  }
  static Json reasoning_item(const std::string& text) {
    const Json content = {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "reasoning"},
            {"id", new_name("rs_")},
            {"status", "completed"},
            {"summary", Json::array()},
            {"content", Json::array({content})}};
  }
  static Json call_item(const std::string& id, const std::string& name,
                        const std::string& arguments) {
    return {{"type", "function_call"}, {"id", new_name("fc_")}, {"call_id", id}, {"name", name},
            {"arguments", arguments},  {"status", "completed"}};
  }

  void end(const std::string& reason) {
    const bool cut = reason == "length";
    response_["status"] = cut ? "incomplete" : "completed";
    if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }

  void tell(const char* type, Json data) {
    data["type"] = type;
    data["sequence_number"] = sequence_++;
    emit(data);
  }

  // Opens an item and announces it without its content.
  void open(const std::string& kind, Json item) {
    close();
    kind_ = kind;
    text_.clear();
    item_ = std::move(item);
    Json empty = item_;
    empty["status"] = "in_progress";
    if (empty.contains("content")) empty["content"] = Json::array();
    tell("response.output_item.added", {{"output_index", index()}, {"item", empty}});
    if (kind == "message")
      tell("response.content_part.added", place({{"content_index", 0}, {"part", text_part("")}}));
  }

  void put_text(const std::string& kind, const std::string& text) {
    if (kind_ != kind) open(kind, kind == "message" ? message_item("") : reasoning_item(""));
    text_ += text;
    Json data = {{"content_index", 0}, {"delta", text}};
    if (kind == "message") data["logprobs"] = Json::array();
    tell(kind == "message" ? "response.output_text.delta" : "response.reasoning_text.delta",
         place(std::move(data)));
  }

  void put_call(const Json& call) {
    const Json function = call.value("function", Json::object());
    const std::string kind = "call " + std::to_string(call.value("index", 0));
    if (kind_ != kind) open(kind, call_item(call.value("id", ""), function.value("name", ""), ""));
    const std::string arguments = function.value("arguments", "");
    text_ += arguments;
    if (!arguments.empty())
      tell("response.function_call_arguments.delta", place({{"delta", arguments}}));
  }

  // Closes the open item; `cut` says that the token limit ended it.
  void close(bool cut = false) {
    if (kind_.empty()) return;
    if (cut) item_["status"] = "incomplete";
    if (kind_ == "message") {
      item_["content"][0]["text"] = text_;
      tell("response.output_text.done",
           place({{"content_index", 0}, {"text", text_}, {"logprobs", Json::array()}}));
      tell("response.content_part.done",
           place({{"content_index", 0}, {"part", item_["content"][0]}}));
    } else if (kind_ == "reasoning") {
      item_["content"][0]["text"] = text_;
      tell("response.reasoning_text.done", place({{"content_index", 0}, {"text", text_}}));
    } else {
      item_["arguments"] = text_;
      tell("response.function_call_arguments.done",
           place({{"name", item_["name"]}, {"arguments", text_}}));
    }
    tell("response.output_item.done", {{"output_index", index()}, {"item", item_}});
    response_["output"].push_back(item_);
    kind_.clear();
  }

  size_t index() const { return response_["output"].size(); }
  Json place(Json data) const {
    data["item_id"] = item_["id"];
    data["output_index"] = index();
    return data;
  }

  Json response_;
  int64_t sequence_ = 0;
  std::string kind_;  // The open item has this kind; empty: none is open.
  std::string text_;  // the open item has this text so far
  Json item_, usage_;
  std::string reason_ = "stop";
};

}  // namespace

std::shared_ptr<HttpReply> responses_reply(std::shared_ptr<HttpReply> reply,
                                           const OrderedJson& request) {
  return std::make_shared<ResponsesReply>(std::move(reply), request);
}

}  // namespace walsh
