#include "serve/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace walsh {
namespace {

OrderedJson tools() {
  return parse_ordered_json(R"([
      {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
       "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
      {"type": "function", "function": {"name": "add", "parameters": {}}}])",
                            "tools");
}

struct Read {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
  bool operator==(const Read&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Read& read) {
  out << "content [" << read.content << "] reasoning [" << read.reasoning << "]";
  for (const auto& [name, arguments] : read.calls)
    out << " " << name << "(" << arguments << ")";
  return out;
}

// In pieces of `size` bytes, which must not matter.
Read read_in_pieces(const AnswerReaderOptions& options, const std::string& text, size_t size) {
  AnswerReader reader(options);
  Read result;
  const auto add = [&](const AnswerDelta& delta) {
    result.content += delta.content;
    result.reasoning += delta.reasoning;
    for (const auto& call : delta.calls) {
      if (call.index == result.calls.size()) result.calls.emplace_back(call.name, "");
      EXPECT_EQ(call.index + 1, result.calls.size());
      result.calls.back().second += call.arguments;
    }
  };
  for (size_t at = 0; at < text.size(); at += size)
    add(reader.push(std::string_view(text).substr(at, size)));
  add(reader.finish());
  EXPECT_EQ(reader.calls(), result.calls.size());
  return result;
}

AnswerReaderOptions options_for(ToolSyntax syntax, bool thinks = false) {
  AnswerReaderOptions options;
  options.syntax.tools = syntax;
  if (thinks) options.syntax.think_begin = "<think>", options.syntax.think_end = "</think>";
  options.read_tools = true;
  options.tools = tools();
  if (syntax == ToolSyntax::qwen) options.texts = text_parameters(options.tools);
  return options;
}

void expect_read(const AnswerReaderOptions& options, const std::string& text,
                 const Read& expected) {
  for (size_t size = 1; size <= text.size() + 1; size += size < 4 ? 1 : 5)
    ASSERT_EQ(read_in_pieces(options, text, size), expected) << "in pieces of " << size;
}

TEST(AnswerReader, CallsOfHermesAndQwen) {
  const auto options = options_for(ToolSyntax::hermes);
  expect_read(
      options,
      "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A }\\\"\"}}\n"
      "</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"add\"}\n</tool_call>",
      {"I look.", "", {{"get_weather", R"({"city": "A }\""})"}, {"add", R"({"a":1})"}}});
  expect_read(options,
              "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
              {"", "", {{"add", R"({"a": 1})"}}});
  expect_read(options, "Use <tool_bar> and <tool_call>nothing</tool_call> \n",
              {"Use <tool_bar> and <tool_call>nothing</tool_call> \n", "", {}});
}

// Whatever the order of a call's keys and the form of its mark.
TEST(AnswerReader, CallsOfNoToolAreContent) {
  for (const char* call :
       {R"({"name": "absent", "arguments": {}})", R"({"arguments": {}, "name": "absent"})"}) {
    const std::string text = "<tool_call>" + std::string(call) + "</tool_call>";
    const std::string good = R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)";
    expect_read(options_for(ToolSyntax::hermes), text, {text, "", {}});
    expect_read(options_for(ToolSyntax::hermes), text + good, {text, "", {{"add", "{}"}}});
  }
  const char* tagged = "<function=absent>\n<parameter=a>\n1\n</parameter>\n</function>";
  expect_read(options_for(ToolSyntax::qwen), tagged, {tagged, "", {}});
  const char* named = "[TOOL_CALLS]absent[ARGS]{\"a\": 1}";
  expect_read(options_for(ToolSyntax::mistral_named), named, {named, "", {}});
}

TEST(AnswerReader, TextBehindACallIsContent) {
  const std::string call = R"(<tool_call>{"name": "add", "arguments": {}})";
  const auto options = options_for(ToolSyntax::hermes);
  expect_read(options, call + "\nThat was it.", {"That was it.", "", {{"add", "{}"}}});
  expect_read(options, call + "\n</tool_call> That was it.",
              {" That was it.", "", {{"add", "{}"}}});
  expect_read(options, call + "\n</tool_call>\n", {"", "", {{"add", "{}"}}});
}

TEST(AnswerReader, CallsAreStreamedBeforeTheyEnd) {
  AnswerReader reader(options_for(ToolSyntax::hermes));
  reader.push("<tool_call>\n{\"name\": \"add\", ");
  AnswerDelta delta = reader.push("\"arguments\": {\"a\"");
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "add");
  EXPECT_EQ(delta.calls[0].arguments, "{\"a\"");
  delta = reader.push(": 1");
  EXPECT_EQ(delta.calls[0].name, "");
  EXPECT_EQ(delta.calls[0].arguments, ": 1");
  EXPECT_EQ(reader.calls(), 0u);
  reader.push("}}");
  EXPECT_EQ(reader.calls(), 1u);
}

TEST(AnswerReader, FunctionsOfQwenCoder) {
  const auto options = options_for(ToolSyntax::qwen);
  expect_read(
      options,
      "Let me see.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n"
      "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
      "<function=add>\n</function>\n</tool_call>",
      {"Let me see.", "", {{"get_weather", R"({"city": "12", "days": 3})"}, {"add", "{}"}}});
  expect_read(options, "<function=add>\n<parameter=x>\na\nb <c>\n</parameter>\n</function>",
              {"", "", {{"add", R"({"x": "a\nb <c>"})"}}});
}

// References and combinations are followed to know what is a text.
TEST(AnswerReader, TextsBetweenTagsAreKnownByTheirSchema) {
  auto options = options_for(ToolSyntax::qwen);
  options.tools[1]["function"]["parameters"] = parse_ordered_json(R"({
      "$ref": "#/$defs/p", "$defs": {"t": {"type": "string"}, "p": {"type": "object",
      "properties": {"a": {"$ref": "#/$defs/t"}, "b": {"allOf": [{"$ref": "#/$defs/t"}, {}]},
      "c": {"enum": ["1", "2"]}, "d": {"enum": ["1", 2]}, "e": {"type": ["string", "null"]}}}}})",
                                                                  "schema");
  options.texts = text_parameters(options.tools);
  std::string call = "<function=add>\n";
  for (const char* name : {"a", "b", "c", "d", "e"})
    call += std::string("<parameter=") + name + ">\n1\n</parameter>\n";
  expect_read(options, call + "</function>",
              {"", "", {{"add", R"({"a": "1", "b": "1", "c": "1", "d": 1, "e": 1})"}}});
}

TEST(AnswerReader, CallsOfLlama) {
  const auto options = options_for(ToolSyntax::llama);
  expect_read(options, R"({"name": "add", "parameters": {"a": [1, "}"]}})",
              {"", "", {{"add", R"({"a":[1,"}"]})"}}});
  expect_read(options,
              R"(<|python_tag|>{"type": "function", "name": "add", "parameters": {}}; )"
              R"({"name": "get_weather", "parameters": {"city": "B"}})",
              {"", "", {{"add", "{}"}, {"get_weather", R"({"city":"B"})"}}});
  expect_read(options, R"({"name": "unknown", "parameters": {}})",
              {R"({"name": "unknown", "parameters": {}})", "", {}});
  expect_read(options, "  {\"a\": 1", {"{\"a\": 1", "", {}});
  expect_read(options, "Plain < text", {"Plain < text", "", {}});
  auto python = options;
  python.tools[1]["function"]["name"] = "python";
  expect_read(python, "<|python_tag|>print(\"x\")\n",
              {"", "", {{"python", R"({"code":"print(\"x\")\n"})"}}});
}

TEST(AnswerReader, CallsOfMistral) {
  const auto options = options_for(ToolSyntax::mistral);
  expect_read(options,
              R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, )"
              R"({"name": "get_weather", "arguments": {"city": "]"}, "id": "abcdefghi"}])",
              {"", "", {{"add", R"({"a": 1})"}, {"get_weather", R"({"city": "]"})"}}});
  expect_read(options_for(ToolSyntax::mistral_named),
              R"(Yes.[TOOL_CALLS]add[ARGS]{"a": 1})"
              R"([TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "C"})",
              {"Yes.", "", {{"add", R"({"a": 1})"}, {"get_weather", R"({"city": "C"})"}}});
}

TEST(AnswerReader, ChannelsOfHarmony) {
  const auto options = options_for(ToolSyntax::harmony);
  expect_read(options,
              "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
              "to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
              {"", "Hm.", {{"add", "{\"a\": 1}"}}});
  expect_read(options,
              "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.add"
              "<|channel|>commentary json<|message|>{}<|call|>",
              {"", "Hm.", {{"add", "{}"}}});
  expect_read(options, "<|channel|>final<|message|>Done.", {"Done.", "", {}});
}

TEST(AnswerReader, Reasoning) {
  const auto options = options_for(ToolSyntax::hermes, true);
  expect_read(options, "<think>\nHm, a < b.\n</think>\n\nYes.", {"Yes.", "Hm, a < b.", {}});
  expect_read(
      options,
      "\n<think>\n\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
      {"", "", {{"add", "{}"}}});
  expect_read(options, "No <think> here", {"No <think> here", "", {}});
  expect_read(options, "<thin", {"<thin", "", {}});
  auto open = options;
  open.syntax.thinking = true;
  expect_read(open, "Hm\n</think>\nYes", {"Yes", "Hm", {}});
  expect_read(open, "Hm", {"", "Hm", {}});
  open.read_reasoning = false;
  open.read_tools = false;
  expect_read(open, "Hm\n</think>\nYes", {"Hm\n</think>\nYes", "", {}});
}

TEST(AnswerReader, SyntaxComesFromTheTemplate) {
  EXPECT_EQ(chat_syntax("{{ '<|channel|>' }} tools", "").tools, ToolSyntax::harmony);
  EXPECT_EQ(chat_syntax("[TOOL_CALLS]", "").tools, ToolSyntax::mistral);
  EXPECT_EQ(chat_syntax("[TOOL_CALLS][ARGS]", "").tools, ToolSyntax::mistral_named);
  EXPECT_EQ(chat_syntax("<tool_call><function=a><parameter=b>", "").tools, ToolSyntax::qwen);
  EXPECT_EQ(chat_syntax("<tool_call>", "").tools, ToolSyntax::hermes);
  EXPECT_EQ(chat_syntax("parameters", "").tools, ToolSyntax::llama);
  EXPECT_FALSE(chat_syntax("messages", "").shows_tools);
  EXPECT_TRUE(chat_syntax("</think>", "<think>\n").thinking);
  EXPECT_TRUE(chat_syntax("</think>", "<think>\n\n</think>\n\n").thought);
  EXPECT_FALSE(chat_syntax("</think>", "assistant\n").thinking);
}

}  // namespace
}  // namespace walsh
