// Tests structured output, tool calls and reasoning, from the request to the reply.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "grammar/random_schema.h"
#include "io/json.h"
#include "serve/service.h"
#include "threads.h"

namespace walsh {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
// This template is like Qwen's, but shorter.
constexpr const char* kTemplate =
    "{% if tools %}<tools>{{ tools | tojson }}</tools> <tool_call>{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls | default('') }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: "
    "{% if thinking %}<think>\n{% endif %}{% endif %}";

class Recorded : public HttpReply {
 public:
  void send(HttpResponse what) override {
    response = std::move(what);
    done = true;
  }
  void start_events(HttpResponse what) override { response = std::move(what); }
  void event(std::string text) override { events.push_back(std::move(text)); }
  void end_events() override { done = true; }
  void on_gone(std::function<void()>) override {}

  OrderedJson json() const { return parse_ordered_json(response.body, "answer"); }

  HttpResponse response;
  std::vector<std::string> events;
  bool done = false;
};

class StructuredTest : public testing::Test {
 protected:
  StructuredTest() : loaded_(load_model(kModel, nullptr, load_options())) { use(kTemplate); }

  LoadOptions load_options() {
    LoadOptions options;
    options.pool = &pool_;
    return options;
  }
  void use(const std::string& source) {
    loaded_.chat.emplace(ChatTemplate::Named{{"default", source}}, ChatTemplate::Named{}, "test");
    SchedulerOptions options;
    options.positions = 512;
    options.running = 4;
    service_.reset();
    scheduler_ = std::make_unique<Scheduler>(loaded_.model, options);
    ServiceOptions names;
    names.model_name = "tiny";
    service_ = std::make_unique<Service>(loaded_, *scheduler_, names,
                                         make_chat_prompt(*loaded_.chat));
  }

  std::shared_ptr<Recorded> ask(const std::string& path, const OrderedJson& body) {
    const auto reply = std::make_shared<Recorded>();
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body.dump();
    request.headers.emplace("host", "127.0.0.1");
    service_->handle(request, reply);
    while (!reply->done && scheduler_->step()) {
    }
    EXPECT_TRUE(reply->done);
    return reply;
  }
  std::shared_ptr<Recorded> chat(OrderedJson more) {
    more["messages"] = {{{"role", "user"}, {"content", "Name a river."}}};
    return ask("/v1/chat/completions", more);
  }
  // Returns the only choice of an answer that must be one.
  OrderedJson choice(const std::shared_ptr<Recorded>& reply) {
    EXPECT_EQ(reply->response.status, 200) << reply->response.body;
    return reply->json()["choices"][0];
  }
  // Returns the concatenation of a stream's chunks.
  OrderedJson joined(const std::shared_ptr<Recorded>& reply) {
    OrderedJson message = {
        {"content", ""}, {"reasoning_content", ""}, {"calls", OrderedJson::array()}};
    for (const std::string& event : reply->events) {
      if (event.starts_with("data: [DONE]")) continue;
      const OrderedJson one = parse_ordered_json(event.substr(6), "event")["choices"][0];
      for (const char* key : {"content", "reasoning_content"})
        if (one["delta"].contains(key))
          message[key] = message[key].get<std::string>() + one["delta"][key].get<std::string>();
      if (!one["finish_reason"].is_null()) message["finish_reason"] = one["finish_reason"];
      if (!one["delta"].contains("tool_calls")) continue;
      for (const OrderedJson& call : one["delta"]["tool_calls"]) {
        auto& calls = message["calls"];
        if (call.contains("id"))
          calls.push_back({{"name", call["function"]["name"]}, {"arguments", ""}});
        auto& known = calls[call["index"].get<size_t>()];
        known["arguments"] = known["arguments"].get<std::string>() +
                             call["function"]["arguments"].get<std::string>();
      }
    }
    return message;
  }
  std::string refusal(const std::shared_ptr<Recorded>& reply) {
    EXPECT_EQ(reply->response.status, 400) << reply->response.body;
    return reply->json()["error"]["message"].get<std::string>();
  }

  ThreadPool pool_{test::kThreads};
  LoadedModel loaded_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Service> service_;
};

OrderedJson weather_tools() {
  return parse_ordered_json(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer",
      "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
      "properties": {}, "additionalProperties": false}}}])",
                            "tools");
}

TEST_F(StructuredTest, AGrammarIsEnforcedAndEndsTheText) {
  const auto one = choice(ask("/v1/completions", {{"prompt", "The answer is"},
                                                  {"max_tokens", 20},
                                                  {"grammar", R"(root ::= " yes" | " no")"}}));
  EXPECT_THAT(one["text"].get<std::string>(), testing::AnyOf(" yes", " no"));
  EXPECT_EQ(one["finish_reason"], "stop");
  const auto another =
      choice(ask("/v1/completions",
                 {{"prompt", "The answer is"}, {"structured_outputs", {{"choice", {"7"}}}}}));
  EXPECT_EQ(another["text"], "7");
}

// A constraint that is not known would not be enforced.
TEST_F(StructuredTest, UnknownKindsOfStructuredOutputsAreRefused) {
  for (const char* kind : {"structural_tag", "json_lines"}) {
    const OrderedJson body = {
        {"prompt", "a"}, {"max_tokens", 1}, {"structured_outputs", {{kind, "x"}}}};
    EXPECT_THAT(refusal(ask("/v1/completions", body)),
                HasSubstr(std::string("'structured_outputs.") + kind + "' must be absent"));
  }
  const OrderedJson known = {
      {"choice", {"7"}}, {"structural_tag", nullptr}, {"disable_any_whitespace", true}};
  EXPECT_EQ(
      choice(ask("/v1/completions", {{"prompt", "a"}, {"structured_outputs", known}}))["text"],
      "7");
}

TEST_F(StructuredTest, ARegularExpressionIsEnforcedForTheWholeText) {
  for (const OrderedJson& more :
       {OrderedJson{{"guided_regex", " (yes|no)[.!]"}},
        OrderedJson{{"structured_outputs", {{"regex", " (yes|no)[.!]"}}}}}) {
    OrderedJson body = more;
    body["prompt"] = "The answer is";
    body["max_tokens"] = 20;
    const auto one = choice(ask("/v1/completions", body));
    EXPECT_THAT(one["text"].get<std::string>(), testing::AnyOf(" yes.", " yes!", " no.", " no!"));
    EXPECT_EQ(one["finish_reason"], "stop");
  }
  EXPECT_THAT(refusal(chat({{"guided_regex", "(?=a)"}})), HasSubstr("guided_regex"));
  EXPECT_THAT(refusal(chat({{"guided_regex", 7}})), HasSubstr("'guided_regex'"));
}

// A stream is compared to the byte, but for what is new every time.
TEST_F(StructuredTest, StreamsHaveTheFormThatClientsRead) {
  const auto stream = [&](const std::string& path, OrderedJson body) {
    body.update({{"guided_choice", {"7"}},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}});
    std::string all;
    const auto reply = ask(path, body);
    for (const std::string& event : reply->events)
      all += event;
    all = std::regex_replace(all, std::regex("\"created\":[0-9]+"), "\"created\":1");
    all = std::regex_replace(all, std::regex(R"("timings":\{[^}]*\})"), R"("timings":{})");
    return std::regex_replace(all, std::regex("cmpl-[0-9a-f]{32}"), "cmpl-0");
  };
  const std::string text_end =
      R"(,"created":1,"id":"cmpl-0","model":"tiny","object":"text_completion",)"
      R"("system_fingerprint":"walsh")";
  EXPECT_EQ(
      stream("/v1/completions", {{"prompt", "The answer is"}}),
      R"(data: {"choices":[{"finish_reason":null,"index":0,"logprobs":null,"text":"7"}])" +
          text_end + ",\"usage\":null}\n\n" +
          R"(data: {"choices":[{"finish_reason":"stop","index":0,"logprobs":null,"text":""}])" +
          text_end + ",\"timings\":{},\"usage\":null}\n\n" + R"(data: {"choices":[])" + text_end +
          R"(,"timings":{},"usage":{"completion_tokens":1,)"
          R"("completion_tokens_details":{"reasoning_tokens":0},)"
          R"("prompt_tokens":4,)"
          R"("prompt_tokens_details":{"cached_tokens":0},"total_tokens":5}})"
          "\n\ndata: [DONE]\n\n");
  const std::string chat_end =
      R"(,"finish_reason":null,"index":0,"logprobs":null}],"created":1,"id":"chatcmpl-0",)"
      R"("model":"tiny","object":"chat.completion.chunk","system_fingerprint":"walsh",)"
      R"("usage":null})"
      "\n\n";
  const std::string chat_text =
      stream("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}}});
  EXPECT_TRUE(
      chat_text.starts_with(R"(data: {"choices":[{"delta":{"content":"","role":"assistant"})" +
                            chat_end + R"(data: {"choices":[{"delta":{"content":"7"})" + chat_end +
                            R"(data: {"choices":[{"delta":{},"finish_reason":"stop")"))
      << chat_text;
  EXPECT_TRUE(chat_text.ends_with("\n\ndata: [DONE]\n\n"));
}

TEST_F(StructuredTest, StrictToolsChangeNoTextWithoutCalls) {
  OrderedJson strict = weather_tools();
  for (auto& tool : strict)
    tool["function"]["strict"] = true;
  const OrderedJson more = {{"temperature", 0}, {"max_tokens", 40}};
  OrderedJson loose_chat = more, strict_chat = more;
  loose_chat["tools"] = weather_tools();
  strict_chat["tools"] = strict;
  const auto prompt_of = [](const std::shared_ptr<Recorded>& reply) {
    return reply->json()["usage"]["prompt_tokens"];
  };
  // The template shows whether a tool is strict, so that the prompts have to be made alike.
  use("<tool_call>{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | length }}");
  const auto loose_reply = chat(loose_chat), strict_reply = chat(strict_chat);
  EXPECT_EQ(prompt_of(loose_reply), prompt_of(strict_reply));
  EXPECT_EQ(choice(loose_reply), choice(strict_reply));
}

TEST_F(StructuredTest, WrongTypesDeepInsideAreRefusedByName) {
  const auto refused_tool = [&](const char* tool) {
    return refusal(chat({{"tools", OrderedJson::array({parse_ordered_json(tool, "tool")})}}));
  };
  EXPECT_THAT(refused_tool(R"({"type": 5, "function": {"name": "f"}})"), HasSubstr("'tools[0]'"));
  EXPECT_THAT(refused_tool(R"({"type": null, "function": {"name": "f"}})"),
              HasSubstr("'tools[0]'"));
  EXPECT_THAT(refused_tool(R"({"function": {"name": "f", "strict": "yes"}})"),
              HasSubstr("'tools[0].function.strict'"));
  for (const char* part : {R"({"type": 5, "text": "a"})", R"({"type": null})", R"({"type": []})",
                           R"({"type": "text", "text": 5})", R"({"text": "a"})", "5"}) {
    OrderedJson body;
    body["messages"] = parse_ordered_json(
        std::string(R"([{"role": "user", "content": [)") + part + "]}]", "messages");
    EXPECT_THAT(refusal(ask("/v1/chat/completions", body)), HasSubstr("'messages[0].content[0]"))
        << part;
  }
}

// A template would say that it has found no content, but not of which message.
TEST_F(StructuredTest, MessagesWithoutATextAreNamed) {
  for (const char* message : {R"({"role": "user"})", R"({"role": "system", "content": null})",
                              R"({"role": "user", "content": 5})"}) {
    OrderedJson body;
    body["messages"] = parse_ordered_json(
        std::string(R"([{"role": "user", "content": "a"}, )") + message + "]", "messages");
    EXPECT_THAT(refusal(ask("/v1/chat/completions", body)), HasSubstr("'messages[1].content'"))
        << message;
  }
}

TEST_F(StructuredTest, AnswersMatchTheSchemaInTheOrderOfItsProperties) {
  const OrderedJson schema = parse_ordered_json(R"({"type": "object", "properties": {
      "river": {"type": "string", "maxLength": 12}, "length": {"type": "integer"},
      "banks": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
      "required": ["river", "length", "banks"], "additionalProperties": false})",
                                                "schema");
  const OrderedJson format = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "r"}, {"strict", true}, {"schema", schema}}}};
  for (int seed = 0; seed < 4; ++seed) {
    const auto one =
        choice(chat({{"response_format", format}, {"seed", seed}, {"temperature", 1}}));
    EXPECT_EQ(one["finish_reason"], "stop");
    const auto text = one["message"]["content"].get<std::string>();
    const auto value = parse_ordered_json(text, "content");
    EXPECT_TRUE(value.contains("banks")) << text;
    EXPECT_EQ(value.begin().key(), "river");
    EXPECT_LE(value["banks"].size(), 3u);
    const auto streamed = joined(
        chat({{"response_format", format}, {"seed", seed}, {"temperature", 1}, {"stream", true}}));
    EXPECT_EQ(streamed["content"], text);
  }
  const auto object =
      choice(chat({{"response_format", {{"type", "json_object"}}}, {"max_tokens", 30}}));
  EXPECT_TRUE(object["message"]["content"].get<std::string>().starts_with("{"));
}

TEST_F(StructuredTest, RandomSchemasHoldForAModelsAnswers) {
  Random random(5);
  for (int i = 0; i < 25; ++i) {
    const OrderedJson schema = test::RandomSchema(random).make(2);
    const auto one = choice(ask("/v1/completions", {{"prompt", "A"},
                                                    {"json_schema", schema},
                                                    {"temperature", 1.5},
                                                    {"top_k", 0},
                                                    {"min_p", 0},
                                                    {"top_p", 1},
                                                    {"seed", i},
                                                    {"max_tokens", 500}}));
    ASSERT_EQ(one["finish_reason"], "stop") << schema << one;
    const OrderedJson value = parse_ordered_json(one["text"].get<std::string>(), "answer",
                                                 {.refuse_duplicate_keys = false});
    EXPECT_TRUE(test::is_valid(schema, value)) << schema << one;
  }
}

TEST_F(StructuredTest, WhatCannotBeEnforcedIsRefusedWithItsPlace) {
  EXPECT_THAT(
      refusal(chat(
          {{"response_format",
            {{"type", "json_schema"},
             {"json_schema", {{"schema", {{"properties", {{"a", {{"disallow", "null"}}}}}}}}}}}})),
      HasSubstr("response_format.json_schema.schema/properties/a/disallow"));
  EXPECT_THAT(refusal(chat({{"grammar", "root ::= root \"a\" | \"b\""}})),
              HasSubstr("left-recursive"));
  EXPECT_THAT(refusal(chat({{"grammar", "root ::= \"a\"{999999}{999999}"}})), HasSubstr("grammar"));
  EXPECT_THAT(
      refusal(chat({{"grammar", "root ::= \"a\""}, {"json_schema", OrderedJson::object()}})),
      HasSubstr("'json_schema' must be absent"));
  EXPECT_THAT(refusal(chat({{"response_format", {{"type", "json_schema"}}}})), HasSubstr("schema"));
  EXPECT_THAT(refusal(chat({{"tool_choice", "required"}})), HasSubstr("tool_choice"));
  EXPECT_THAT(
      refusal(chat({{"tools", weather_tools()},
                    {"tool_choice", {{"type", "function"}, {"function", {{"name", "absent"}}}}}})),
      HasSubstr("one of the tools"));
  OrderedJson tools = weather_tools();
  tools[1]["function"]["parameters"]["extends"] = true;
  EXPECT_THAT(refusal(chat({{"tools", tools}, {"tool_choice", "required"}})),
              HasSubstr("tools[1].function.parameters/extends"));
  EXPECT_EQ(choice(chat({{"tools", tools}, {"max_tokens", 1}}))["finish_reason"], "length");
  tools[1]["function"]["strict"] = true;
  EXPECT_THAT(refusal(chat({{"tools", tools}})), HasSubstr("tools[1].function.parameters/extends"));
}

TEST_F(StructuredTest, RequiredToolsAreCalledWithValidArguments) {
  for (const char* source :
       {"<tool_call> tools", "<function=<parameter= tools", "[TOOL_CALLS] tools",
        "[TOOL_CALLS] [ARGS] tools", "<|tool_call|> tools", "<seed:tool_call> tools",
        "<tool_call> <arg_key> tools", "tools"}) {
    use(source);
    for (const bool stream : {false, true}) {
      const auto reply =
          chat({{"tools", weather_tools()},
                {"tool_choice", {{"type", "function"}, {"function", {{"name", "get_weather"}}}}},
                {"seed", 3},
                {"stream", stream}});
      OrderedJson call;
      if (stream) {
        const auto message = joined(reply);
        ASSERT_EQ(message["calls"].size(), 1u) << source;
        EXPECT_EQ(message["finish_reason"], "tool_calls");
        EXPECT_EQ(message["content"], "");
        call = message["calls"][0];
      } else {
        const auto one = choice(reply);
        EXPECT_EQ(one["finish_reason"], "tool_calls") << source << one;
        ASSERT_TRUE(one["message"].contains("tool_calls")) << source << one;
        EXPECT_TRUE(one["message"]["content"].is_null());
        call = one["message"]["tool_calls"][0]["function"];
      }
      EXPECT_EQ(call["name"], "get_weather");
      const auto arguments = parse_ordered_json(call["arguments"].get<std::string>(), source);
      EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "Rome") << arguments;
      EXPECT_GE(arguments["days"].get<int>(), 1);
      EXPECT_LE(arguments["days"].get<int>(), 9);
    }
  }
}

// This holds however few tokens there are: nothing of a call is content, and its name comes first.
TEST_F(StructuredTest, HalfARequiredCallIsACall) {
  for (const char* source : {"<tool_call> tools", "<function=<parameter= tools",
                             "<tool_call> <arg_key> tools", "[TOOL_CALLS] tools", "tools"}) {
    use(source);
    for (int tokens = 1; tokens < 16; tokens += 2) {
      for (const bool stream : {false, true}) {
        const auto reply = chat({{"tools", OrderedJson::array({weather_tools()[0]})},
                                 {"tool_choice", "required"},
                                 {"max_tokens", tokens},
                                 {"seed", 3},
                                 {"stream", stream}});
        const OrderedJson said = stream ? joined(reply) : choice(reply);
        EXPECT_EQ(said["finish_reason"], "length") << source << tokens;
        const OrderedJson& message = stream ? said : said["message"];
        EXPECT_TRUE(message["content"].is_null() || message["content"] == "") << message;
        const OrderedJson calls = message[stream ? "calls" : "tool_calls"];
        ASSERT_EQ(calls.size(), 1u) << source << message;
        EXPECT_EQ((stream ? calls[0] : calls[0]["function"])["name"], "get_weather");
      }
    }
  }
}

TEST_F(StructuredTest, MessagesMatchTheirFormat) {
  const OrderedJson schema = parse_ordered_json(R"({"type": "object", "properties": {
      "river": {"type": "string", "maxLength": 9}, "long": {"type": "boolean"}},
      "required": ["river", "long"], "additionalProperties": false})",
                                                "schema");
  const OrderedJson format = {{"type", "json_schema"}, {"schema", schema}};
  for (const OrderedJson& more : {OrderedJson{{"output_config", {{"format", format}}}},
                                  OrderedJson{{"output_format", format}}}) {
    OrderedJson body = more;
    // Space between the members alone may take more than a hundred tokens.
    body.update({{"max_tokens", 230},
                 {"seed", 1},
                 {"messages", {{{"role", "user"}, {"content", "Name a river."}}}}});
    const auto reply = ask("/v1/messages", body);
    ASSERT_EQ(reply->response.status, 200) << reply->response.body;
    const OrderedJson message = reply->json();
    EXPECT_EQ(message["stop_reason"], "end_turn");
    const auto value =
        parse_ordered_json(message["content"][0]["text"].get<std::string>(), "content");
    EXPECT_TRUE(value["long"].is_boolean()) << value;
  }
  OrderedJson body = {{"max_tokens", 8}, {"messages", {{{"role", "user"}, {"content", "a"}}}}};
  body["output_config"] = {
      {"format", {{"type", "json_schema"}, {"schema", {{"extends", OrderedJson::object()}}}}}};
  EXPECT_THAT(refusal(ask("/v1/messages", body)), HasSubstr("output_config.format.schema/extends"));
}

TEST_F(StructuredTest, ToolsReachTemplatesThatCallThemOtherwise) {
  use("{% if xml_tools %}{{ xml_tools | length }}{% endif %}<tool_call>");
  OrderedJson body = {{"tools", weather_tools()},
                      {"messages", {{{"role", "user"}, {"content", "a"}}}}};
  EXPECT_EQ(ask("/apply-template", body)->json()["prompt"], "2<tool_call>");
  body["chat_template_kwargs"] = {{"xml_tools", {1}}};
  EXPECT_EQ(ask("/apply-template", body)->json()["prompt"], "1<tool_call>");
}

TEST_F(StructuredTest, AModelThatReasonsDoesSoBeforeItsAnswer) {
  const std::string source = std::string(kTemplate) + "{# </think> #}";
  use(source);
  // A text of a grammar cannot end in the reasoning, so it continues until the mark or the last
  // token.
  const auto reply = chat({{"grammar", "root ::= \"42\""},
                           {"chat_template_kwargs", {{"thinking", true}}},
                           {"max_tokens", 40}});
  const auto one = choice(reply);
  EXPECT_TRUE(one["finish_reason"] == "length" || one["message"]["content"] == "42") << one;
  EXPECT_TRUE(one["message"].contains("reasoning_content")) << one;
  const auto reasoning =
      reply->json()["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>();
  EXPECT_GT(reasoning, 0);
  EXPECT_LE(reasoning, 40);
  EXPECT_EQ(choice(chat({{"grammar", "root ::= \"42\""}, {"temperature", 0}}))["message"]["content"]
                .get<std::string>()
                .find("</think>"),
            std::string::npos);
}

TEST_F(StructuredTest, WhatIsAskedForAndNotGivenIsRefused) {
  EXPECT_THAT(refusal(chat({{"functions", OrderedJson::array({{{"name", "f"}}})}})),
              HasSubstr("'functions'"));
  EXPECT_THAT(refusal(chat({{"function_call", "auto"}})), HasSubstr("'function_call'"));
  EXPECT_THAT(refusal(chat({{"modalities", OrderedJson::array({"text", "audio"})}})),
              HasSubstr("'modalities'"));
  choice(chat({{"modalities", OrderedJson::array({"text"})}, {"max_tokens", 1}}));
}

TEST_F(StructuredTest, DevelopersAreTheSystemWhereATemplateKnowsNone) {
  const std::string source =
      "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }} {% endfor %}";
  const OrderedJson body = {
      {"messages",
       {{{"role", "developer"}, {"content", "d"}}, {{"role", "user"}, {"content", "u"}}}}};
  use(source);
  EXPECT_EQ(ask("/apply-template", body)->json()["prompt"], "system:d user:u ");
  use("{# developer #}" + source);
  EXPECT_EQ(ask("/apply-template", body)->json()["prompt"], "developer:d user:u ");
}

TEST_F(StructuredTest, ToolsAndTheirResultsGoThroughTheTemplate) {
  OrderedJson body = {{"tools", weather_tools()}};
  body["messages"] = parse_ordered_json(R"([{"role": "user", "content": "?"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
       "function": {"name": "now", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "noon"}]}])",
                                        "messages");
  const auto prompt = ask("/apply-template", body)->json()["prompt"].get<std::string>();
  EXPECT_THAT(prompt, HasSubstr("<tools>"));
  EXPECT_THAT(prompt, HasSubstr("'arguments': {'a': 1}"));
  EXPECT_THAT(prompt, HasSubstr("tool: noon"));
  body["tool_choice"] = "none";
  EXPECT_THAT(ask("/apply-template", body)->json()["prompt"].get<std::string>(),
              testing::Not(HasSubstr("<tools>")));
  use("{{ messages }}");
  body.erase("tool_choice");
  EXPECT_THAT(refusal(ask("/v1/chat/completions", body)), HasSubstr("does not show tools"));
}

}  // namespace
}  // namespace walsh
