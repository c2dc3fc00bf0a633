// Tests calls between marks of their own, with tags of MiniMax, and in Python. The cases are those
// that vLLM's tests of its parsers have (tests/tool_parsers), as far as both agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "read_answer.h"
#include "serve/python_calls.h"

namespace walsh {
namespace {

using test::expect_cut;
using test::expect_read;
using test::options_for;

constexpr const char* kKimi = "<|tool_call_argument_begin|> tools";
constexpr const char* kDeepSeek = "<\uFF5Ctool\u2581call\u2581begin\uFF5C> <think> </think> tools";
constexpr const char* kMiniMax = "<minimax:tool_call> <think> </think> tools";
constexpr const char* kCommand =
    "<|START_ACTION|> <|END_THINKING|> <|START_RESPONSE|> <|END_RESPONSE|> tools";
constexpr const char* kLfm = "<|tool_call_start|> tools";

std::string kimi(const std::string& name, const std::string& arguments) {
  return "<|tool_call_begin|>" + name + "<|tool_call_argument_begin|>" + arguments +
         "<|tool_call_end|>";
}

TEST(MarkedCalls, OfKimi) {
  const auto options = options_for(kKimi);
  const std::string begin = "<|tool_calls_section_begin|>", end = "<|tool_calls_section_end|>";
  expect_read(
      options,
      "I'll check. " + begin + kimi("functions.get_weather:0 ", R"({"city": "Beijing"})") +
          kimi(" functions.add:1", "{\n  \"a\": \"<div>}</div>\"\n} ") + end,
      {"I'll check.",
       "",
       {{"get_weather", R"({"city": "Beijing"})"}, {"add", "{\n  \"a\": \"<div>}</div>\"\n}"}}});
  expect_read(options, begin + "\n" + kimi("add:0", "{}") + "\n" + end + "Done.",
              {"Done.", "", {{"add", "{}"}}});
  expect_read(options, kimi("functions.add:0", "{}"), {"", "", {{"add", "{}"}}});
  for (const std::string& none :
       {begin + kimi("functions.absent:0", "{}") + end, begin + "and no call", begin})
    expect_read(options, none, {none, "", {}});
  expect_cut(options, begin + "<|tool_call_begin|>functions.get_wea", {"", "", {}});
  expect_cut(options, begin + "<|tool_call_begin|>functions.get_weather:0<|tool_call_arg",
             {"", "", {}});
  expect_cut(options,
             begin + "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>",
             {"", "", {{"get_weather", ""}}});
  expect_cut(options, begin + kimi("add:0", "{}") + "<|tool_call_begin|>functions.ad",
             {"", "", {{"add", "{}"}}});
}

TEST(MarkedCalls, OfDeepSeek) {
  const auto options = options_for(kDeepSeek);
  const std::string begin = "<\uFF5Ctool\u2581calls\u2581begin\uFF5C>",
                    end = "<\uFF5Ctool\u2581calls\u2581end\uFF5C>";
  const auto named = [](const std::string& name, const std::string& arguments) {
    return "<\uFF5Ctool\u2581call\u2581begin\uFF5C>" + name + "<\uFF5Ctool\u2581sep\uFF5C>" +
           arguments + "<\uFF5Ctool\u2581call\u2581end\uFF5C>";
  };
  const auto fenced = [&](const std::string& name, const std::string& arguments) {
    return named("function", name + "\n```json\n" + arguments + "\n```");
  };
  expect_read(options,
              "<think>I look.</think>Let me see." + begin +
                  fenced("get_weather", R"({"city": "Tokyo", "days": 2})") + "\n" +
                  fenced("add", R"({"t": "He said \"hello\" ```", "n": [{}, null]})") + end,
              {"Let me see.",
               "I look.",
               {{"get_weather", R"({"city": "Tokyo", "days": 2})"},
                {"add", R"({"t": "He said \"hello\" ```", "n": [{}, null]})"}}});
  expect_read(options,
              "normal text" + begin + named("add", R"({"x":1})") + named("add", R"({"y":2})") +
                  end + " some suffix text",
              {"normal text some suffix text", "", {{"add", R"({"x":1})"}, {"add", R"({"y":2})"}}});
  const std::string none = "Let me look that up." + begin + "get_weather";
  expect_read(options, none, {none, "", {}});
  expect_cut(options,
             begin +
                 "<\uFF5Ctool\u2581call\u2581begin\uFF5C>function<\uFF5Ctool\u2581sep\uFF5C>get_"
                 "weather\n```js",
             {"", "", {{"get_weather", ""}}});
  expect_cut(options,
             begin +
                 "<\uFF5Ctool\u2581call\u2581begin\uFF5C>get_weather<\uFF5Ctool\u2581sep\uFF5C>{"
                 "\"city\": \"To",
             {"", "", {{"get_weather", "{\"city\": \"To"}}});
}

TEST(MarkedCalls, OfMiniMax) {
  const auto options = options_for(kMiniMax);
  expect_read(
      options,
      "<think>\nI look.\n</think>\nLet me check.\n<minimax:tool_call>\n"
      "<invoke name=\"get_weather\">\n<parameter name=\"city\">San Francisco, \n7</parameter>\n"
      "<parameter name=\"days\">5</parameter>\n</invoke>\n"
      "<invoke name=\"add\">\n</invoke>\n</minimax:tool_call>\nDone.",
      {"Let me check.\nDone.",
       "I look.",
       {{"get_weather", R"({"city": "San Francisco, \n7", "days": 5})"}, {"add", "{}"}}});
  expect_read(options,
              "<minimax:tool_call><invoke name=\"add\"><parameter name=\"x\">1</parameter></invoke>"
              "<invoke name=\"add\"><parameter name=\"y\">{\"z\": [2]}</parameter></invoke>"
              "</minimax:tool_call>",
              {"", "", {{"add", R"({"x": 1})"}, {"add", R"({"y": {"z":[2]}})"}}});
  const std::string none = "<minimax:tool_call><invoke name=\"absent\"></invoke>";
  expect_read(options, none, {none, "", {}});
  expect_cut(options,
             "<minimax:tool_call><invoke name=\"get_weather\"><parameter name=\"city\">Par</para",
             {"", "", {{"get_weather", "{\"city\": \"Par"}}});
}

TEST(MarkedCalls, OfCommand) {
  const auto options = options_for(kCommand);
  expect_read(
      options,
      "<|START_THINKING|> i will call it<|END_THINKING|><|START_ACTION|>\n[\n"
      R"(    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "A"}},)"
      "\n"
      R"(    {"tool_call_id": "1", "tool_name": "add", "parameters": {"x": 42}})"
      "\n]\n<|END_ACTION|>",
      {"", "i will call it", {{"get_weather", R"({"city":"A"})"}, {"add", R"({"x":42})"}}});
  expect_read(options,
              "<|START_THINKING|>So.<|END_THINKING|><|START_RESPONSE|>A city.<|END_RESPONSE|>",
              {"A city.", "So.", {}});
  EXPECT_EQ(enforceable(options.syntax).tools, ToolSyntax::llama);
}

TEST(MarkedCalls, OfLfm2) {
  const auto options = options_for(kLfm);
  expect_read(options,
              "<|tool_call_start|>[get_weather(city='Martha\\'s Vineyard', days=07), add()]"
              "<|tool_call_end|>\nChecking.",
              {"\nChecking.",
               "",
               {{"get_weather", R"({"city":"Martha's Vineyard","days":7})"}, {"add", "{}"}}});
  for (const char* none :
       {"<|tool_call_start|>[absent()]<|tool_call_end|>",
        "<|tool_call_start|>[add(1)]<|tool_call_end|>",
        "<|tool_call_start|>[add(x=b'z')]<|tool_call_end|>", "<|tool_call_start|>"})
    expect_read(options, none, {none, "", {}});
  expect_cut(options, "<|tool_call_start|>[get_weather(ci", {"", "", {}});
}

std::string python(const std::string& text) {
  const auto calls = parse_python_calls(text);
  if (!calls) return "none";
  std::string result;
  for (const PythonCall& call : *calls)
    result += call.name + call.arguments.dump() + ";";
  return result;
}

TEST(PythonCalls, AreReadAsPythonReadsThem) {
  EXPECT_EQ(python("[]"), "");
  EXPECT_EQ(python(" [ f ( ) , g.h(a=1,) ] "), "f{};g.h{\"a\":1};");
  EXPECT_EQ(python("[f(name='John Doe', age=37, address={'city': 'A', \"b\": {}}, role=None, "
                   "passed=True, aliases=['John', 'J'], tags={'x', 'y'}, pair=(1, -2.5e3))]"),
            R"(f{"name":"John Doe","age":37,"address":{"city":"A","b":{}},"role":null,)"
            R"("passed":true,"aliases":["John","J"],"tags":["x","y"],"pair":[1,-2500.0]};)");
  EXPECT_EQ(python(R"([f(a="tab\there", b='\x41\u00e9\q\\', c='"')])"),
            "f{\"a\":\"tab\\there\",\"b\":\"A\xC3\xA9\\\\q\\\\\",\"c\":\"\\\"\"};");
  EXPECT_EQ(python("[bash(command='sed -n '360,450p' /a.py')]"),
            R"(bash{"command":"sed -n '360,450p' /a.py"};)");
  EXPECT_EQ(python("[exec(command='cat > f << EOF\nprint(1)\nEOF'), f(x='grep -F \"]\" log')]"),
            R"(exec{"command":"cat > f << EOF\nprint(1)\nEOF"};f{"x":"grep -F \"]\" log"};)");
  for (const char* bad : {"", "f()", "[f(]", "[f()", "[f() g()]", "[f(a)]", "[f(a=)]", "[f(a=b)]",
                          "[f(a='x)]", "[f(a={1: 2})]", "[f(a={'b': 1, 'c'})]", "[f()] x"})
    EXPECT_EQ(python(bad), "none") << bad;
  EXPECT_EQ(python("[f(a=" + std::string(100, '[') + std::string(100, ']') + ")]"), "none");
}

}  // namespace
}  // namespace walsh
