#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "read_answer.h"

namespace walsh {
namespace {

using test::expect_cut;
using test::expect_read;
using test::options_for;
using test::Read;
using test::read_in_pieces;
using test::tools;

// These words of a template show how calls are written.
constexpr const char* kHermes = "<tool_call> tools";
constexpr const char* kQwen = "<tool_call> <function= <parameter= tools";
constexpr const char* kSeed = "<seed:tool_call> <function= <parameter= tools";
constexpr const char* kGlm = "<tool_call> <arg_key> tools";
constexpr const char* kLlama = "tools";
constexpr const char* kMistral = "[TOOL_CALLS] tools";
constexpr const char* kMistralNamed = "[TOOL_CALLS] [ARGS] tools";
constexpr const char* kGranite = "<|tool_call|> tools";
constexpr const char* kGemma = "<|tool_call> <tool_call|> <channel|> tools";
constexpr const char* kHarmony = "<|channel|> tools";

TEST(AnswerReader, CallsOfHermesAndQwen) {
  const auto options = options_for(kHermes);
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

// This holds for any order of a call's keys and any form of its mark.
TEST(AnswerReader, CallsOfNoToolAreContent) {
  for (const char* call :
       {R"({"name": "absent", "arguments": {}})", R"({"arguments": {}, "name": "absent"})"}) {
    const std::string text = "<tool_call>" + std::string(call) + "</tool_call>";
    const std::string good = R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)";
    expect_read(options_for(kHermes), text, {text, "", {}});
    expect_read(options_for(kHermes), text + good, {text, "", {{"add", "{}"}}});
  }
  const char* tagged = "<function=absent>\n<parameter=a>\n1\n</parameter>\n</function>";
  expect_read(options_for(kQwen), tagged, {tagged, "", {}});
  const char* named = "[TOOL_CALLS]absent[ARGS]{\"a\": 1}";
  expect_read(options_for(kMistralNamed), named, {named, "", {}});
}

TEST(AnswerReader, TextBehindACallIsContent) {
  const std::string call = R"(<tool_call>{"name": "add", "arguments": {}})";
  const auto options = options_for(kHermes);
  expect_read(options, call + "\nThat was it.", {"That was it.", "", {{"add", "{}"}}});
  expect_read(options, call + "\n</tool_call> That was it.",
              {" That was it.", "", {{"add", "{}"}}});
  expect_read(options, call + "\n</tool_call>\n", {"", "", {{"add", "{}"}}});
}

TEST(AnswerReader, CallsAreStreamedBeforeTheyEnd) {
  AnswerReader reader(options_for(kHermes));
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
  const auto options = options_for(kQwen);
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
  auto options = options_for(kQwen);
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
  const auto options = options_for(kLlama);
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
  const auto options = options_for(kMistral);
  expect_read(options,
              R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, )"
              R"({"name": "get_weather", "arguments": {"city": "]"}, "id": "abcdefghi"}])",
              {"", "", {{"add", R"({"a": 1})"}, {"get_weather", R"({"city": "]"})"}}});
  expect_read(options_for(kMistralNamed),
              R"(Yes.[TOOL_CALLS]add[ARGS]{"a": 1})"
              R"([TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "C"})",
              {"Yes.", "", {{"add", R"({"a": 1})"}, {"get_weather", R"({"city": "C"})"}}});
}

// Granite 3 writes a list behind its mark, with the arguments of a call in front or behind; 3.1 the
// mark as a text.
TEST(AnswerReader, CallsOfGranite) {
  const auto options = options_for(kGranite);
  expect_read(options,
              "<|tool_call|> [\n  {\"arguments\": {\"a\": 1}, \"name\": \"add\"},\n"
              "  {\"name\": \"get_weather\", \"arguments\": {\"city\": \"C\"}}\n]",
              {"", "", {{"add", R"({"a":1})"}, {"get_weather", R"({"city": "C"})"}}});
  expect_read(options, R"(Yes.<tool_call>[{"name": "add", "arguments": {}}] Done.)",
              {"Yes. Done.", "", {{"add", "{}"}}});
  expect_read(options, R"(<|tool_call|>{"name": "add", "arguments": {}})",
              {"", "", {{"add", "{}"}}});
  expect_read(options, R"(<|tool_call|> [{"name": "absent", "arguments": {}}])",
              {R"(<|tool_call|> [{"name": "absent", "arguments": {}}])", "", {}});
  expect_read(options, "<|tool_call|> none", {"<|tool_call|> none", "", {}});
  // Granite 4 writes objects, their arguments sometimes as a text.
  expect_read(options_for(kHermes),
              "So: \n<tool_call> {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"} "
              "</tool_call> And \n <tool_call> {\"name\": \"add\", \"arguments\": {}} </tool_call> "
              "Done.",
              {"So: And Done.", "", {{"add", R"({"a": 1})"}, {"add", "{}"}}});
  expect_read(options_for("<|tool_call|> <think></think> <response></response> tools"),
              "<think>Hm.</think>\n<response>Yes.</response>", {"Yes.", "Hm.", {}});
  expect_read(options_for("<|tool_call|> <think></think> <response></response> tools"),
              "A <response> tag", {"A <response> tag", "", {}});
}

TEST(AnswerReader, CallsOfGlm) {
  const auto options = options_for(std::string(kGlm) + "<think></think>");
  expect_read(
      options,
      "\n<think>I look.</think>\nLet me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>"
      "\n<arg_value>A \"<b>\"\n</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3"
      "</arg_value>\n</tool_call>\n<tool_call>add\n</tool_call>\nDone.",
      {"Let me see.\nDone.",
       "I look.",
       {{"get_weather", R"({"city": "A \"<b>\"\n", "days": 3})"}, {"add", "{}"}}});
  // GLM-4.7 writes no line ends.
  expect_read(options,
              "<tool_call>add<arg_key>a</arg_key><arg_value>[1]</arg_value></tool_call>"
              "<tool_call>add</tool_call>",
              {"", "", {{"add", R"({"a": [1]})"}, {"add", "{}"}}});
  // A key without its end is passed over.
  expect_read(options,
              "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>B</arg_value>\n"
              "<arg_key>days\n<arg_value>3</arg_value>\n</tool_call>",
              {"", "", {{"get_weather", R"({"city": "B"})"}}});
  for (const char* none :
       {"<tool_call>absent\n</tool_call>", "Use <tool_call> here", "<tool_call>"})
    expect_read(options, none, {none, "", {}});
}

TEST(AnswerReader, CallsAndReasoningOfGemma) {
  const auto options = options_for(kGemma);
  expect_read(
      options,
      "<|channel>thought\nI look.<channel|>Let me see.<|tool_call>call:get_weather{city:<|\"|>A "
      "{\"b\"},<|\"|>,days:3,more:{x:[1.5,true,null,<|\"|>y<|\"|>],<|\"|>a b<|\"|>:bare word}}"
      "<tool_call|><|tool_call>call:add{}<tool_call|>",
      {"Let me see.",
       "I look.",
       {{"get_weather", R"({"city":"A {\"b\"},","days":3,"more":{"x":[1.5,true,null,"y"],)"
                        R"("a b":"bare word"}})"},
        {"add", "{}"}}});
  for (const char* none :
       {"<|tool_call>call:absent{}<tool_call|>", "<|tool_call>call:add{a:1<tool_call|>",
        "<|tool_call>call:add{a:<|\"|>1}<tool_call|>", "<|tool_call>add{}<tool_call|>",
        "Use <|tool_call> here", "<|tool_call>"})
    expect_read(options, none, {none, "", {}});
  std::string deep = "<|tool_call>call:add{a:" + std::string(100, '[') + std::string(100, ']');
  deep += "}<tool_call|>";
  expect_read(options, deep, {deep, "", {}});
  expect_cut(options, "<|tool_call>call:get_wea", {"", "", {}});
  expect_cut(options, "<|tool_call>call:get_weather{city:<|\"|>Pa",
             {"", "", {{"get_weather", ""}}});
  // A grammar enforces calls as JSON.
  EXPECT_EQ(enforceable(options.syntax).tools, ToolSyntax::llama);
  EXPECT_TRUE(chat_syntax(kGemma, "<|turn>model\n<|channel>thought\n<channel|>").thought);
}

TEST(AnswerReader, CallsAndReasoningOfSeed) {
  const std::string source =
      std::string(kSeed) + "<seed:think></seed:think><seed:cot_budget_reflect>";
  const std::string call =
      "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris, \nFrance</parameter>\n"
      "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>";
  const std::pair<std::string, std::string> read = {"get_weather",
                                                    R"({"city": "Paris, \nFrance", "days": 2})"};
  expect_read(options_for(source), call, {"", "", {read}});
  expect_read(
      options_for(source),
      "<seed:think>The format is <seed:tool_call>.\n<seed:cot_budget_reflect>131 left."
      "</seed:cot_budget_reflect>\n So be it.</seed:think>\nWait.\n" +
          call + "\n" + call + "\nDone.",
      {"Wait.\nDone.", "The format is <seed:tool_call>.\n131 left.\n So be it.", {read, read}});
  expect_read(options_for(source, "assistant\n<seed:think><seed:cot_budget_reflect>"),
              "</seed:cot_budget_reflect>\nNone is left.</seed:think>\nYes.",
              {"Yes.", "None is left.", {}});
  expect_read(options_for(source),
              "<seed:tool_call>\n<function=add>\n</function>\n<function=add>\n</function>\n"
              "</seed:tool_call>",
              {"", "", {{"add", "{}"}, {"add", "{}"}}});
}

// A call cut off after its name is returned with the arguments so far; one cut off before is
// dropped, and no part of it becomes content.
TEST(AnswerReader, HalfACallIsNoContent) {
  for (const char* nothing :
       {"<tool_call>", "<tool_call>\n{\"na", "<tool_call>\n{\"name\": \"get_wea",
        "<tool_call>\n{\"arguments\": {\"city\": \"A\"}"})
    expect_cut(options_for(kHermes), std::string("Well. ") + nothing, {"Well.", "", {}});
  expect_cut(options_for(kHermes), "<tool_call>\n{\"name\": \"add\", \"argu",
             {"", "", {{"add", ""}}});
  expect_cut(options_for(kHermes), "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1",
             {"", "", {{"add", "{\"a\": [1"}}});
  expect_cut(options_for(kGranite), "<|tool_call|>[{\"name\": \"add\", \"arguments\": {}}, {\"na",
             {"", "", {{"add", "{}"}}});
  expect_cut(options_for(kMistralNamed), "[TOOL_CALLS]add[AR", {"", "", {{"add", ""}}});
  expect_cut(options_for(kMistralNamed), "[TOOL_CALLS]ad", {"", "", {}});
  expect_cut(options_for(kLlama),
             "{\"name\": \"add\", \"parameters\": {\"a\": ", {"", "", {{"add", " {\"a\": "}}});
  expect_cut(options_for(kLlama), "{\"name\": \"Ann\"", {"{\"name\": \"Ann\"", "", {}});
  expect_cut(options_for(kGlm), "<tool_call>get_wea", {"", "", {}});
  const std::string tag = "<tool_call>\n<function=get_weather>\n<parameter=city>\n";
  expect_cut(options_for(kQwen), "<tool_call>\n<func", {"", "", {}});
  expect_cut(options_for(kQwen), tag + "Par", {"", "", {{"get_weather", R"({"city": "Par)"}}});
  expect_cut(options_for(kQwen), tag + "Paris\n</param",
             {"", "", {{"get_weather", R"({"city": "Paris\n)"}}});
  expect_cut(options_for(kQwen), tag + "Paris\n</parameter>\n<param",
             {"", "", {{"get_weather", R"({"city": "Paris")"}}});
  expect_cut(options_for(kGlm), "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>1",
             {"", "", {{"get_weather", R"({"days": 1)"}}});
  expect_cut(options_for(kHarmony), "<|channel|>commentary to=functions.add <|constrain|>js",
             {"", "", {{"add", ""}}});
  expect_cut(options_for(kHermes), "Use <tool_bar> and <tool",
             {"Use <tool_bar> and <tool", "", {}});
}

TEST(AnswerReader, ARequiredCallLeavesNoContent) {
  for (const char* source :
       {kHermes, kQwen, kSeed, kGlm, kLlama, kMistral, kMistralNamed, kGranite, kHarmony}) {
    auto options = options_for(source);
    options.required = options.enforced = true;
    const std::string& mark = options.syntax.call_begins.empty() ? "<|channel|>commentary"
                                                                 : options.syntax.call_begins[0];
    for (const bool cut : {false, true}) {
      for (size_t size = 0; size <= mark.size(); ++size)
        expect_read(options, mark.substr(0, size), {"", "", {}}, cut);
      // The name is known where there is only one.
      auto named = options;
      named.tools.erase(0);
      expect_read(named, mark.substr(0, 3), {"", "", {{"add", ""}}}, cut);
    }
  }
}

TEST(AnswerReader, NoMoreCallsThanAreWanted) {
  auto options = options_for(kHermes);
  options.most_calls = 1;
  const std::string call = R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)";
  expect_read(options, "So " + call + "\n" + call + "more", {"So", "", {{"add", "{}"}}});
  options = options_for(kMistral);
  options.most_calls = 1;
  expect_read(options,
              R"([TOOL_CALLS][{"name": "add", "arguments": {}}, {"name": "add", "arguments": {}}])",
              {"", "", {{"add", "{}"}}});
}

TEST(AnswerReader, ChannelsOfHarmony) {
  const auto options = options_for(kHarmony);
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
  const auto options = options_for("<tool_call> <think> </think> tools");
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
  EXPECT_EQ(chat_syntax("<tool_call> <arg_key>", "").tools, ToolSyntax::glm);
  EXPECT_EQ(chat_syntax("<|tool_call|>", "").tools, ToolSyntax::mistral);
  EXPECT_EQ(chat_syntax("<seed:tool_call>", "").call_end, "</seed:tool_call>");
  EXPECT_TRUE(
      chat_syntax("</seed:think><seed:cot_budget_reflect>", "<seed:think><seed:cot_budget_reflect>")
          .thinking);
  EXPECT_FALSE(chat_syntax("messages", "").shows_tools);
  EXPECT_TRUE(chat_syntax("</think>", "<think>\n").thinking);
  EXPECT_TRUE(chat_syntax("</think>", "<think>\n\n</think>\n\n").thought);
  EXPECT_FALSE(chat_syntax("</think>", "assistant\n").thinking);
}

}  // namespace
}  // namespace walsh
