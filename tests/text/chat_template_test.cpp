#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "io/wide_integers.h"
#include "text_test_util.h"

namespace walsh {
namespace {

using test::error_of;

OrderedJson json(const char* text) {
  return parse_ordered_json(text, "test");
}

const OrderedJson kUser = json(R"([{"role": "user", "content": "Hi"}])");

std::string tokens_of(const char* config) {
  const auto made = ChatTemplate::from_files(config, "{{ bos_token }}|{{ eos_token }}|{{ x }}");
  return made->apply(kUser);
}

TEST(ChatTemplate, ComesFromTheConfigOrFromItsOwnFile) {
  const char* const config = R"({"chat_template": "config {{ messages[0].content }}"})";
  EXPECT_EQ(ChatTemplate::from_files(config, "")->apply(kUser), "config Hi");
  EXPECT_EQ(ChatTemplate::from_files(config, "file")->apply(kUser), "file");
  EXPECT_EQ(ChatTemplate::from_files("", "file")->apply(kUser), "file");
  EXPECT_FALSE(ChatTemplate::from_files("{}", "").has_value());
  EXPECT_FALSE(ChatTemplate::from_files(R"({"chat_template": null})", "").has_value());
  EXPECT_FALSE(ChatTemplate::from_files("", "").has_value());
}

TEST(ChatTemplate, OneOfSeveralIsChosenByTools) {
  const auto made = ChatTemplate::from_files(
      R"({"chat_template": [{"name": "default", "template": "d"},
                            {"name": "tool_use", "template": "t{{ tools | length }}"},
                            {"name": "rag", "template": "r"}]})",
      "");
  const OrderedJson tools = OrderedJson::array();
  ChatOptions options;
  EXPECT_EQ(made->apply(kUser, options), "d");
  options.tools = &tools;
  EXPECT_EQ(made->apply(kUser, options), "t0");
  options.name = "rag";
  EXPECT_EQ(made->apply(kUser, options), "r");
  options.name = "other";
  EXPECT_NE(error_of([&] { made->apply(kUser, options); }), "");
  EXPECT_EQ(made->source(true), "t{{ tools | length }}");
  EXPECT_EQ(made->source(false), "d");
  const ChatTemplate none({{"a", ""}, {"b", ""}}, {}, "model.gguf");
  EXPECT_EQ(error_of([&] { none.apply(kUser); }),
            "model.gguf: has several templates and none called \"default\"");
}

TEST(ChatTemplate, SpecialTokensAreVariables) {
  EXPECT_EQ(tokens_of(R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})"),
            "<s>|</s>|");
  EXPECT_EQ(tokens_of(R"({"bos_token": null, "x": "no"})"), "||");
  EXPECT_NE(error_of([] { tokens_of(R"({"bos_token": 1})"); }), "");
  const ChatTemplate made({{"", "{{ bos_token }}"}}, {{"bos_token", "<s>"}}, "t");
  EXPECT_EQ(made.apply(kUser), "<s>");
  ChatOptions options;
  options.variables = json(R"({"bos_token": "own"})");
  EXPECT_EQ(made.apply(kUser, options), "own");
}

TEST(ChatTemplate, WrongFilesAreRefused) {
  const auto refusal = [](const char* config) {
    return error_of([&] { ChatTemplate::from_files(config, ""); });
  };
  EXPECT_NE(refusal("{"), "");
  EXPECT_NE(refusal("[]"), "");
  EXPECT_NE(refusal(R"({"chat_template": 1})"), "");
  EXPECT_NE(refusal(R"({"chat_template": [{"name": "default"}]})"), "");
  EXPECT_NE(refusal(R"({"chat_template": ["x"]})"), "");
  EXPECT_EQ(refusal(R"({"chat_template": "\n{{"})"),
            "tokenizer_config.json, chat_template, line 2: the template ends inside a tag");
  EXPECT_EQ(error_of([] { ChatTemplate::from_files("", "{% x %}"); }),
            "chat_template.jinja, line 1: the tag 'x' is unknown or not supported");
}

TEST(ChatTemplate, WrongConversationsAreRefused) {
  const ChatTemplate made({{"", "{{ messages[0].role }}"}}, {}, "t");
  const auto refusal = [&](const char* messages) {
    return error_of([&] { made.apply(json(messages)); });
  };
  EXPECT_EQ(refusal("[]"), "t: the conversation has no message");
  EXPECT_EQ(refusal("{}"), "t: the conversation has no message");
  EXPECT_EQ(refusal("[1]"), "t: a message is not an object");
  ChatOptions options;
  options.variables = json(R"({"messages": 1})");
  EXPECT_NE(error_of([&] { made.apply(kUser, options); }), "");
  options.variables = json("[]");
  EXPECT_NE(error_of([&] { made.apply(kUser, options); }), "");
}

// Integers are as Python's, up to 128 bits.
TEST(ChatTemplate, IntegersMayBeLong) {
  const ChatTemplate made({{"default", "{{ messages[0].a | tojson }} {{ messages[0].a.x + 1 }}"}},
                          {}, "t");
  const auto applied = [&](const std::string& number) {
    return made.apply(parse_exact_json("[{\"role\": \"a\", \"a\": {\"x\": " + number + "}}]", "t"));
  };
  EXPECT_EQ(applied("123456789012345678901234"),
            "{\"x\": 123456789012345678901234} 123456789012345678901235");
  EXPECT_EQ(applied("-18446744073709551617"),
            "{\"x\": -18446744073709551617} -18446744073709551616");
  EXPECT_THROW(applied(std::string(40, '9')), Error);
}

TEST(ChatTemplate, FieldsThatAreNullAreLeftOut) {
  const ChatTemplate made({{"", "{{ messages[0].content is defined }}{{ messages[0] | tojson }}"}},
                          {}, "t");
  EXPECT_EQ(made.apply(json(R"([{"role": "assistant", "content": null, "z": 1, "a": 2}])")),
            R"(False{"role": "assistant", "z": 1, "a": 2})");
}

TEST(ChatTemplate, ReasoningHasAllItsNames) {
  const ChatTemplate made({{"", "{{ messages[0] | tojson }}"}}, {}, "t");
  EXPECT_EQ(made.apply(json(R"([{"role": "a", "reasoning": "r"}])")),
            R"({"thinking": "r", "role": "a", "reasoning": "r", "reasoning_content": "r"})");
  EXPECT_EQ(made.apply(json(R"([{"reasoning_content": "r", "thinking": "t", "b": 1}])")),
            R"({"thinking": "t", "reasoning_content": "r", "b": 1})");
}

TEST(ChatTemplate, AMessageIsContinued) {
  const ChatTemplate made({{"", "{% for m in messages %}[{{ m.content }}]{% endfor %}"}}, {}, "t");
  const ChatTemplate trimmed({{"", "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"}},
                             {}, "t");
  ChatOptions options;
  options.continue_field = "content";
  const OrderedJson chat = json(R"([{"content": "a"}, {"content": "b "}])");
  EXPECT_EQ(made.apply(chat, options), "[a][b ");
  EXPECT_EQ(trimmed.apply(chat, options), "[a][b");
  EXPECT_NE(error_of([&] { made.apply(json(R"([{"role": "a"}])"), options); }), "");
  options.continue_field = "other";
  EXPECT_NE(error_of([&] { made.apply(json(R"([{"other": "a"}])"), options); }), "");
  options.continue_field = "content";
  options.add_generation_prompt = true;
  EXPECT_NE(error_of([&] { made.apply(chat, options); }), "");
  const ChatTemplate drops({{"", "{{ messages[0].content[:1] }}"}}, {}, "t");
  options.add_generation_prompt = false;
  EXPECT_NE(error_of([&] { drops.apply(json(R"([{"content": "abc"}])"), options); }), "");
}

TEST(ChatTemplate, TheTimeIsLocalTime) {
  const ChatTemplate made({{"", "{{ strftime_now('%Y') }}"}}, {}, "t");
  EXPECT_GE(std::stoi(made.apply(kUser)), 2024);
  ChatOptions options;
  options.time = std::tm{};
  EXPECT_EQ(made.apply(kUser, options), "1900");
}

TEST(ChatTemplate, ServesSeveralThreads) {
  const ChatTemplate made(
      {{"",
        "{% set n = namespace(i=0) %}{% for x in range(2000) %}{% set n.i = n.i + x %}"
        "{% endfor %}{{ n.i }}"}},
      {}, "t");
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] { result = made.apply(kUser); });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& result : results)
    EXPECT_EQ(result, "1999000");
}

}  // namespace
}  // namespace walsh
