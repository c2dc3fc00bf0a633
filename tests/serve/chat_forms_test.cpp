// Tests how Anthropic's messages and OpenAI's responses are translated to chats and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/messages_api.h"
#include "serve/responses_api.h"

namespace walsh {
namespace {

class Recorded : public HttpReply {
 public:
  void send(HttpResponse what) override { response = std::move(what); }
  void start_events(HttpResponse what) override { response = std::move(what); }
  void event(std::string text) override {
    if (!text.starts_with("event: ")) return;
    const size_t line = text.find('\n');
    names.push_back(text.substr(7, line - 7));
    data.push_back(Json::parse(text.substr(line + 7)));
    EXPECT_EQ(data.back()["type"], names.back());
  }
  void end_events() override { ended = true; }
  void on_gone(std::function<void()>) override {}
  Json body() const { return Json::parse(response.body); }

  HttpResponse response;
  std::vector<std::string> names;
  std::vector<Json> data;
  bool ended = false;
};

OrderedJson ordered(const char* text) {
  return OrderedJson::parse(text);
}

// Sends a chat's answer with this message and end.
Json answer(HttpReply& reply, const Recorded& recorded, const char* message, const char* end,
            const Json& more = Json::object()) {
  Json choice = {{"index", 0}, {"message", Json::parse(message)}, {"finish_reason", end}};
  choice.update(more);
  const Json usage = {{"prompt_tokens", 9},
                      {"completion_tokens", 4},
                      {"total_tokens", 13},
                      {"prompt_tokens_details", {{"cached_tokens", 2}}}};
  HttpResponse response;
  response.body = Json{{"model", "m"}, {"choices", Json::array({choice})}, {"usage", usage}}.dump();
  reply.send(std::move(response));
  return recorded.body();
}

void stream(HttpReply& reply, const std::vector<const char*>& deltas, const char* end) {
  reply.start_events({});
  const auto chunk = [&](const Json& choice) {
    reply.event("data: " + Json{{"model", "m"}, {"choices", Json::array({choice})}}.dump() +
                "\n\n");
  };
  for (const char* delta : deltas)
    chunk({{"index", 0}, {"delta", Json::parse(delta)}, {"finish_reason", nullptr}});
  chunk({{"index", 0}, {"delta", Json::object()}, {"finish_reason", end}});
  const Json usage = {{"prompt_tokens", 9}, {"completion_tokens", 4}, {"total_tokens", 13}};
  const Json last = {{"model", "m"}, {"choices", Json::array()}, {"usage", usage}};
  reply.event("data: " + last.dump() + "\n\n");
  reply.event("data: [DONE]\n\n");
  reply.end_events();
}

std::string refusal(OrderedJson (*translate)(const OrderedJson&), const std::string& request) {
  try {
    translate(ordered(request.c_str()));
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status(), 400);
    return e.what();
  }
  return "accepted";
}

OrderedJson message_chat(const OrderedJson& request) {
  return chat_of_messages(request);
}

TEST(MessagesApi, BecomesAChat) {
  const OrderedJson chat = chat_of_messages(ordered(R"({
    "model": "m", "max_tokens": 5, "stop_sequences": ["x"], "top_k": 3, "stream": true,
    "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
    "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "h"},
        {"type": "text", "text": "b"}, {"type": "tool_use", "id": "1", "name": "f",
        "input": {"z": 1, "a": 2}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
        "content": [{"type": "text", "text": "r"}]}, {"type": "text", "text": "c"}]}]})"));
  EXPECT_EQ(chat, ordered(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "h", "tool_calls": [{"id": "1",
        "type": "function", "function": {"name": "f", "arguments": "{\"z\":1,\"a\":2}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "r"},
      {"role": "user", "content": "c"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d",
      "parameters": {"type": "object"}}}],
    "tool_choice": "required", "parallel_tool_calls": false,
    "top_k": 3, "model": "m", "max_tokens": 5, "stream": true, "stop": ["x"],
    "stream_options": {"include_usage": true, "continuous_usage_stats": true}})"));
}

// A last message of the assistant is the beginning of the answer.
TEST(MessagesApi, ContinuesTheAssistantsMessage) {
  const auto continues = [](const char* last, bool count) {
    OrderedJson request = {{"max_tokens", 1}, {"messages", {{{"role", "user"}, {"content", "a"}}}}};
    request["messages"].push_back(ordered(last));
    return chat_of_messages(request, count).value("continue_final_message", false);
  };
  const char* text = R"({"role": "assistant", "content": "{"})";
  EXPECT_TRUE(continues(text, false));
  EXPECT_TRUE(continues(text, true));
  EXPECT_FALSE(continues(R"({"role": "user", "content": "b"})", false));
  EXPECT_FALSE(continues(R"({"role": "assistant", "content": [{"type": "text", "text": "b"},
      {"type": "tool_use", "id": "1", "name": "f", "input": {}}]})",
                         false));
}

// messages.create and messages.parse of the package send requests so.
TEST(MessagesApi, AFormatIsThatOfAChat) {
  const char* schema = R"({"type": "object", "properties": {"z": {}, "a": {}}})";
  for (const char* form :
       {R"("output_config": {"effort": "max", "format": @})", R"("output_format": @)"}) {
    std::string text = R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], )";
    text += std::string(form) + "}";
    text.replace(text.find('@'), 1,
                 std::string(R"({"type": "json_schema", "schema": )") + schema + "}");
    const OrderedJson chat = chat_of_messages(ordered(text.c_str()));
    EXPECT_EQ(chat["response_format"]["type"], "json_schema");
    EXPECT_EQ(chat["response_format"]["json_schema"]["schema"], ordered(schema));
    EXPECT_EQ(chat.value("reasoning_effort", ""), form[8] == 'c' ? "high" : "");
  }
  using testing::HasSubstr;
  const auto refused = [](const std::string& fields) {
    return refusal(message_chat, R"({"max_tokens": 5, "messages": [{"role": "user",
        "content": "a"}], )" + fields +
                                     "}");
  };
  EXPECT_THAT(refused(R"("output_config": 5)"), HasSubstr("'output_config'"));
  EXPECT_THAT(refused(R"("output_config": {"effort": "none"})"),
              HasSubstr("'output_config.effort'"));
  EXPECT_THAT(refused(R"("output_config": {"format": {"type": "json_object"}})"),
              HasSubstr("'output_config.format.type'"));
  EXPECT_THAT(refused(R"("output_format": {"type": "json_schema"})"),
              HasSubstr("'output_format.schema'"));
  const std::string twice = R"({"type": "json_schema", "schema": {}})";
  EXPECT_THAT(
      refused("\"output_config\": {\"format\": " + twice + "}, \"output_format\": " + twice),
      HasSubstr("'output_format'"));
  EXPECT_THAT(refusal(message_chat, R"({"max_tokens": 5, "messages": [{"role": "assistant",
      "content": "{"}], "output_format": {"type": "json_schema", "schema": {}}})"),
              HasSubstr("'output_config.format'"));
  EXPECT_STREQ(
      renamed(ApiError(400, "response_format.json_schema.schema/not: no"), messages_names()).what(),
      "output_config.format.schema/not: no");
}

TEST(MessagesApi, ReasoningIsAskedForOrNot) {
  const auto variables = [](const char* fields) {
    return chat_of_messages(
        ordered((R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], )" +
                 std::string(fields) + "}")
                    .c_str()))["chat_template_kwargs"];
  };
  EXPECT_EQ(variables(R"("thinking": {"type": "disabled"})"),
            ordered(R"({"enable_thinking": false})"));
  EXPECT_EQ(variables(R"("thinking": {"type": "enabled", "budget_tokens": 9}, "top_k": 1)"),
            ordered(R"({"enable_thinking": true})"));
  EXPECT_EQ(variables(R"("thinking": {"type": "enabled"},
                "chat_template_kwargs": {"enable_thinking": false, "a": 1})"),
            ordered(R"({"enable_thinking": false, "a": 1})"));
}

TEST(MessagesApi, ToolsOfServersAreRefusedByName) {
  using testing::HasSubstr;
  const auto with_tool = [](const std::string& tool) {
    return R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "tools": [)" +
           tool + "]}";
  };
  for (const char* type :
       {"web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20250124",
        "computer_toolset_20260801", "browser_toolset_20260801", "tool_search_tool_bm25_20251119",
        "mcp_toolset", "bash_code_execution_20250825"}) {
    const std::string said =
        refusal(message_chat, with_tool(std::string(R"({"name": "x", "type": ")") + type + "\"}"));
    EXPECT_THAT(said, HasSubstr(type));
    EXPECT_THAT(said, HasSubstr("tools[0]"));
  }
  EXPECT_THAT(refusal(message_chat, R"({"max_tokens": 5, "mcp_servers": [{"url": "x"}],
      "messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("'mcp_servers'"));
  EXPECT_THAT(refusal(message_chat, with_tool(R"({"type": 5, "name": "x"})")),
              HasSubstr("tools[0].type"));
}

// Clients run these; the model gets their schemas.
TEST(MessagesApi, ToolsOfClientsThatHaveATypeAreFunctions) {
  for (const auto& [type, name] : {std::pair("bash_20250124", "bash"),
                                   {"text_editor_20250728", "str_replace_based_edit_tool"},
                                   {"memory_20250818", "memory"}}) {
    const OrderedJson request = {{"max_tokens", 5},
                                 {"messages", {{{"role", "user"}, {"content", "a"}}}},
                                 {"tools", {{{"type", type}, {"name", name}, {"strict", true}}}}};
    const OrderedJson function = chat_of_messages(request)["tools"][0]["function"];
    EXPECT_EQ(function["name"], name);
    EXPECT_EQ(function["strict"], true);
    EXPECT_FALSE(function["description"].get<std::string>().empty());
    EXPECT_TRUE(function["parameters"]["properties"].contains("command")) << function;
  }
}

TEST(MessagesApi, RefusesByName) {
  using testing::HasSubstr;
  for (const char* tokens : {"0", "-1", "1.5", "\"1\""})
    EXPECT_THAT(refusal(message_chat, std::string(R"({"max_tokens": )") + tokens +
                                          R"(, "messages": [{"role": "user", "content": "a"}]})"),
                HasSubstr("'max_tokens'"))
        << tokens;
  EXPECT_THAT(refusal(message_chat, R"({"messages": []})"), HasSubstr("'messages'"));
  EXPECT_THAT(refusal(message_chat, R"({"messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("'max_tokens'"));
  EXPECT_THAT(refusal(message_chat, R"({"messages": [{"role": "x", "content": "a"}]})"),
              HasSubstr("'messages[0].role'"));
  EXPECT_THAT(refusal(message_chat, R"({"messages": [{"role": "user", "content": 3}]})"),
              HasSubstr("'messages[0].content'"));
  EXPECT_THAT(
      refusal(message_chat, R"({"messages": [{"role": "user", "content": [{"type": "video"}]}]})"),
      HasSubstr("'messages[0].content[0]'"));
  for (const char* image :
       {R"({"type": "image"})",
        R"({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}})"})
    EXPECT_THAT(refusal(message_chat, R"({"messages": [{"role": "user", "content": [)" +
                                          std::string(image) + "]}]}"),
                HasSubstr("'messages[0].content[0].source'"))
        << image;
  EXPECT_THAT(refusal(message_chat, "[]"), HasSubstr("object"));
}

TEST(MessagesApi, AnswersWithBlocks) {
  const auto recorded = std::make_shared<Recorded>();
  const Json text = answer(*messages_reply(recorded), *recorded,
                           R"({"role": "assistant", "content": "hi"})", "length");
  EXPECT_EQ(text["content"], Json::parse(R"([{"type": "text", "text": "hi"}])"));
  EXPECT_EQ(text["stop_reason"], "max_tokens");
  EXPECT_EQ(text["usage"]["input_tokens"], 7);
  EXPECT_EQ(text["usage"]["cache_read_input_tokens"], 2);
  EXPECT_EQ(text["usage"]["output_tokens"], 4);
  const Json stopped = answer(*messages_reply(recorded), *recorded, R"({"content": "hi"})", "stop",
                              {{"stop_reason", "x"}});
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "x");
  const Json called = answer(*messages_reply(recorded), *recorded, R"({"content": null,
    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]})",
                             "tool_calls");
  EXPECT_EQ(called["stop_reason"], "tool_use");
  EXPECT_EQ(called["content"],
            Json::parse(R"([{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}])"));
}

TEST(MessagesApi, LongIntegersAreHandedOnAsTheyAre) {
  const char* body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f",
        "input": {"id": 123456789012345678901234}}]},
      {"role": "user", "content": "b"}]})";
  const OrderedJson chat = chat_of_messages(parse_ordered_body(body));
  EXPECT_EQ(chat["messages"][1]["tool_calls"][0]["function"]["arguments"],
            R"({"id":123456789012345678901234})");
  const auto recorded = std::make_shared<Recorded>();
  answer(*messages_reply(recorded), *recorded, R"({"content": null, "tool_calls": [{"id": "1",
    "function": {"name": "f", "arguments": "{\"id\": -123456789012345678901234}"}}]})",
         "tool_calls");
  EXPECT_THAT(recorded->response.body, testing::HasSubstr(R"({"id":-123456789012345678901234})"));
}

TEST(MessagesApi, StreamsBlocks) {
  const auto recorded = std::make_shared<Recorded>();
  stream(*messages_reply(recorded),
         {R"({"role": "assistant", "content": ""})", R"({"reasoning_content": "h"})",
          R"({"content": "a"})", R"({"content": "b"})",
          R"({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f"}}]})",
          R"({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})"},
         "tool_calls");
  EXPECT_EQ(recorded->names,
            (std::vector<std::string>{
                "message_start", "content_block_start", "content_block_delta", "content_block_stop",
                "content_block_start", "content_block_delta", "content_block_delta",
                "content_block_stop", "content_block_start", "content_block_delta",
                "content_block_delta", "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(recorded->data[9]["index"], 2);
  EXPECT_EQ(recorded->data[12]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(recorded->data[12]["usage"]["output_tokens"], 4);
  EXPECT_TRUE(recorded->ended);
}

TEST(MessagesApi, ErrorsHaveItsForm) {
  const auto recorded = std::make_shared<Recorded>();
  messages_reply(recorded)->send(ApiError(429, "full").response());
  EXPECT_EQ(recorded->body(), Json::parse(R"({"type": "error", "error":
    {"type": "rate_limit_error", "message": "full"}})"));
  const auto reply = messages_reply(recorded);
  reply->event("data: " + ApiError(500, "broken").response().body + "\n\n");
  reply->event("data: [DONE]\n\n");
  EXPECT_EQ(recorded->names, std::vector<std::string>{"error"});
}

// Faults of the chat name what the client has sent.
TEST(TranslatedNames, AreThoseOfTheClient) {
  const auto message = [](const char* text, const char* param) {
    const ApiError error = renamed(ApiError(400, text, param), messages_names());
    EXPECT_EQ(error.status(), 400);
    return std::string(error.what()) + " (" + error.param() + ")";
  };
  EXPECT_EQ(message("'stop' must be a string, found 3", "stop"),
            "'stop_sequences' must be a string, found 3 (stop_sequences)");
  EXPECT_EQ(message("tools[1].function.parameters/if: cannot be enforced", "tools"),
            "tools[1].input_schema/if: cannot be enforced (tools)");
  EXPECT_EQ(message("'tools[0].function.name' must be a name", "tools[0].function.name"),
            "'tools[0].name' must be a name (tools[0].name)");
  EXPECT_EQ(message("it must stop now, 'stopped' as well", "top_p"),
            "it must stop now, 'stopped' as well (top_p)");
  const ApiError error =
      renamed(ApiError(400, "'max_completion_tokens' must be 1", "max_completion_tokens"),
              responses_names());
  EXPECT_STREQ(error.what(), "'max_output_tokens' must be 1");
  EXPECT_EQ(error.param(), "max_output_tokens");
  EXPECT_STREQ(
      renamed(ApiError(400, "response_format.json_schema.schema/not: no"), responses_names())
          .what(),
      "text.format.schema/not: no");
}

TEST(ResponsesApi, BecomesAChat) {
  const OrderedJson chat = chat_of_responses(ordered(R"({
    "instructions": "s", "max_output_tokens": 5, "store": true, "temperature": 0,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": null}],
    "tool_choice": {"type": "function", "name": "f"}, "reasoning": {"effort": "low"},
    "input": [{"role": "developer", "content": "d"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "reasoning", "summary": []},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": "r"}]})"));
  EXPECT_EQ(chat, ordered(R"({
    "messages": [
      {"role": "system", "content": "s"},
      {"role": "developer", "content": "d"},
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "r"}],
    "temperature": 0, "max_completion_tokens": 5,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n",
      "schema": {"type": "object"}}},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "reasoning_effort": "low", "stream_options": {"include_usage": true}})"));
}

TEST(ResponsesApi, RefusesByName) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(chat_of_responses, R"({"input": 3})"), HasSubstr("'input'"));
  EXPECT_THAT(refusal(chat_of_responses, R"({"input": []})"), HasSubstr("'input'"));
  EXPECT_THAT(refusal(chat_of_responses, R"({"input": "a", "previous_response_id": "r"})"),
              HasSubstr("'previous_response_id'"));
  EXPECT_THAT(refusal(chat_of_responses, R"({"input": "a", "background": true})"),
              HasSubstr("'background'"));
  EXPECT_THAT(refusal(chat_of_responses, R"({"input": "a", "tools": [{"type": "web_search"}]})"),
              HasSubstr("'tools[0]'"));
  EXPECT_THAT(refusal(chat_of_responses, R"({"input": [{"type": "item_reference"}]})"),
              HasSubstr("'input[0]'"));
}

TEST(ResponsesApi, AnswersAndStreamsTheSame) {
  const auto recorded = std::make_shared<Recorded>();
  const OrderedJson request = ordered(R"({"input": "a", "temperature": 0.5})");
  const Json whole =
      answer(*responses_reply(recorded, request), *recorded, R"({"content": "ab"})", "length");
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["temperature"], 0.5);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "ab");
  EXPECT_EQ(whole["usage"]["input_tokens_details"]["cached_tokens"], 2);

  stream(*responses_reply(recorded, request),
         {R"({"role": "assistant", "content": ""})", R"({"content": "a"})", R"({"content": "b"})"},
         "stop");
  EXPECT_EQ(recorded->names,
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  const Json& last = recorded->data.back()["response"];
  EXPECT_EQ(last["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(last["usage"]["total_tokens"], 13);
  EXPECT_EQ(recorded->data[4]["item_id"], last["output"][0]["id"]);
  for (size_t i = 0; i < recorded->data.size(); ++i)
    EXPECT_EQ(recorded->data[i]["sequence_number"], i);
}

TEST(ResponsesApi, CallsOfToolsAreItems) {
  const auto recorded = std::make_shared<Recorded>();
  stream(*responses_reply(recorded, ordered(R"({"input": "a"})")),
         {R"({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f",
            "arguments": ""}}]})",
          R"({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})",
          R"({"tool_calls": [{"index": 1, "id": "2", "function": {"name": "g",
            "arguments": "[]"}}]})"},
         "tool_calls");
  const Json& output = recorded->data.back()["response"]["output"];
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0]["call_id"], "1");
  EXPECT_EQ(output[0]["arguments"], "{}");
  EXPECT_EQ(output[1]["name"], "g");
  EXPECT_EQ(output[1]["status"], "completed");
}

// The arguments of a call that the token limit cuts off are not complete JSON.
TEST(ResponsesApi, HalfACallIsIncomplete) {
  const OrderedJson request = ordered(R"({"input": "a"})");
  const auto recorded = std::make_shared<Recorded>();
  stream(*responses_reply(recorded, request), {R"({"tool_calls": [{"index": 0, "id": "1",
      "function": {"name": "f", "arguments": "{\"a"}}]})"},
         "length");
  const Json& last = recorded->data.back();
  EXPECT_EQ(last["type"], "response.incomplete");
  EXPECT_EQ(last["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(last["response"]["output"][0]["arguments"], "{\"a");
  const Json whole = answer(*responses_reply(recorded, request), *recorded, R"({"content": null,
      "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"a"}}]})",
                            "length");
  EXPECT_EQ(whole["output"][0]["status"], "incomplete");
}

}  // namespace
}  // namespace walsh
