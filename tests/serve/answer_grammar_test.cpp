// Tests grammars for answers with required or strict tools on texts that a model might write,
// without a model.
#include "serve/answer_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "serve/api_error.h"
#include "threads.h"

namespace walsh {
namespace {

constexpr const char* kModel = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";

// get_weather is strict, search is not.
ToolRequest tools(bool required, bool parallel = true) {
  return tool_request({{"tools", parse_ordered_json(R"([
    {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {
      "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {
      "type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}}},
    {"type": "function", "function": {"name": "get", "parameters": {
      "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])",
                                                    "tools")},
                       {"tool_choice", required ? "required" : "auto"},
                       {"parallel_tool_calls", parallel}});
}

class AnswerGrammarTest : public testing::Test {
 protected:
  AnswerGrammarTest() {
    LoadOptions options;
    options.pool = &pool_;
    loaded_.emplace(load_model(kModel, nullptr, options));
  }
  // Makes two texts special tokens.
  void name_special(const std::string& first, const std::string& second) {
    std::ifstream in(std::string(kModel) + "/tokenizer.json");
    std::string text(std::istreambuf_iterator<char>(in), {});
    for (const auto& [from, to] : {std::pair("<|im_start|>", first), {"<|im_end|>", second}})
      for (size_t at; (at = text.find(from)) != text.npos;)
        text.replace(at, std::string_view(from).size(), to);
    loaded_->tokenizer = Tokenizer::from_json(text, "", "test");
    loaded_->grammars = std::make_shared<grammar::GrammarCache>();
    ASSERT_TRUE(loaded_->tokenizer.is_special(*loaded_->tokenizer.token_id(first)));
  }
  void use(const std::string& source, const ToolRequest& tools, const std::string& prompt = "") {
    grammar_ = chat_grammar(*loaded_, chat_syntax(source, prompt), tools, std::nullopt, "");
    ASSERT_NE(grammar_, nullptr);
  }
  enum class Verdict { refused, unfinished, whole };
  Verdict read(const std::string& text) {
    grammar::TokenMatcher matcher(grammar_);
    for (const int32_t token : loaded_->tokenizer.encode(text, false)) {
      const bool allowed = matcher.allowed()->has(token);
      EXPECT_EQ(matcher.accept(token), allowed) << text;
      if (!allowed) return Verdict::refused;
    }
    return matcher.complete() ? Verdict::whole : Verdict::unfinished;
  }
  void expect(Verdict verdict, std::initializer_list<const char*> texts) {
    for (const char* text : texts)
      EXPECT_EQ(read(text), verdict) << text;
  }

  ThreadPool pool_{test::kThreads};
  std::optional<LoadedModel> loaded_;
  std::shared_ptr<const grammar::TokenGrammar> grammar_;
};

constexpr const char* kHarmonyCall =
    R"(<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>)";
constexpr const char* kGood = R"({"city": "Rome", "days": 3})";
constexpr const char* kBad = R"({"city": "Rome", "days": 30})";

TEST_F(AnswerGrammarTest, RequiredCallsOfChannels) {
  for (const bool special : {false, true}) {
    if (special) name_special("<|channel|>", "<|message|>");
    use("<|channel|> tools", tools(true));
    const std::string thought =
        "<|channel|>analysis<|message|>The user wants <b>.<|end|><|start|>assistant";
    EXPECT_EQ(read(kHarmonyCall + std::string(kGood)), Verdict::whole);
    EXPECT_EQ(read(thought + kHarmonyCall + kGood), Verdict::whole);
    EXPECT_EQ(read(thought), Verdict::unfinished);
    EXPECT_EQ(read(kHarmonyCall + std::string(R"({"city": "Rome")")), Verdict::unfinished);
    EXPECT_EQ(read(kHarmonyCall + std::string(kBad)), Verdict::refused);
    expect(Verdict::refused,
           {"Hello", "<|channel|>final<|message|>Hello",
            R"(<|channel|>commentary to=functions.absent <|constrain|>json<|message|>{})"});
  }
}

TEST_F(AnswerGrammarTest, StrictCallsOfChannelsThatNobodyAskedFor) {
  for (const bool special : {false, true}) {
    if (special) name_special("<|channel|>", "<|message|>");
    use("<|channel|> tools", tools(false));
    const std::string thought =
        "<|channel|>analysis<|message|>to=functions.x?<|end|><|start|>assistant";
    expect(Verdict::whole, {"Hello", "<|channel|>final<|message|>See to=functions.absent there",
                            "<|channel|>commentary to=python<|message|>print(1)"});
    for (const std::string& front : {std::string(), thought}) {
      EXPECT_EQ(read(front + kHarmonyCall + kGood), Verdict::whole);
      EXPECT_EQ(read(front + kHarmonyCall + kGood + "<|call|>"), Verdict::whole);
      EXPECT_EQ(
          read(front + " to=functions.get_weather<|channel|>commentary json<|message|>" + kGood),
          Verdict::whole);
      EXPECT_EQ(read(front + kHarmonyCall + kBad), Verdict::refused);
      EXPECT_EQ(read(front + kHarmonyCall + kGood + " and"), Verdict::refused);
    }
    expect(Verdict::unfinished, {"<|channel|>commentary to=functions.get",
                                 "<|channel|>commentary to=functions.get<|message|>{\"b\": "});
    expect(Verdict::whole, {"<|channel|>commentary to=functions.get<|message|>{\"b\": []}"});
    expect(Verdict::refused, {"<|channel|>commentary to=functions.absent"});
  }
}

// Holds the mark, the text up to the arguments, and the text after them.
struct Form {
  const char *source, *begin, *end, *between;
};
constexpr Form kJsonForms[] = {
    {"<tool_call> tools",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", "}\n</tool_call>", "\n"},
    {"[TOOL_CALLS] tools", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": ", "}]",
     nullptr},
    {"[TOOL_CALLS] [ARGS] tools", "[TOOL_CALLS]get_weather[ARGS]", "", ""},
    {"<|tool_call|> tools", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": ", "}]",
     nullptr},
};

TEST_F(AnswerGrammarTest, StrictCallsBeginAtTheirMark) {
  for (const bool special : {false, true}) {
    if (special) name_special("<tool_call>", "[TOOL_CALLS]");
    for (const Form& form : kJsonForms) {
      use(form.source, tools(false));
      const std::string good = form.begin + std::string(kGood) + form.end;
      expect(Verdict::whole, {"", "Hello, <b>world</b>!", "<tool_", "[TOOL_", "{\"name\": 1}",
                              "\xF0\x9F\x8C\x8D and <|end_of_text|> more"});
      EXPECT_EQ(read(good), Verdict::whole) << form.source;
      EXPECT_EQ(read("Let me see.\n" + good), Verdict::whole) << form.source;
      EXPECT_EQ(read("<tool_<" + good), Verdict::whole) << form.source;
      EXPECT_EQ(read("Well: " + std::string(form.begin) + kBad), Verdict::refused) << form.source;
      EXPECT_EQ(read(good.substr(0, good.size() - 3)), Verdict::unfinished) << form.source;
      EXPECT_EQ(read(good + " There."), Verdict::refused) << form.source;
      if (form.between == nullptr) continue;
      EXPECT_EQ(read(good + form.between + good + form.between + good), Verdict::whole);
      use(form.source, tools(false, false));
      EXPECT_EQ(read(good), Verdict::whole);
      EXPECT_EQ(read(good + form.between + good), Verdict::refused) << form.source;
    }
  }
}

TEST_F(AnswerGrammarTest, OtherToolsTakeAnyArguments) {
  use("<tool_call> tools", tools(false));
  expect(Verdict::whole,
         {"<tool_call>\n{\"name\": \"get\", \"arguments\": {\"b\": [1]}}\n</tool_call>"});
  expect(Verdict::refused, {"<tool_call>\n{\"name\": \"get\", \"arguments\": 7",
                            "<tool_call>\n{\"name\": \"absent\""});
  use("<tool_call> tools", tools(true));
  expect(Verdict::refused, {"<tool_call>\n{\"name\": \"get\", \"arguments\": {\"b\": [1]}}"});
}

TEST_F(AnswerGrammarTest, StrictCallsWrittenAsTags) {
  use("<tool_call> <function= <parameter= tools", tools(false));
  const std::string call =
      "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n"
      "</parameter>\n</function>";
  EXPECT_EQ(read("I look.\n<tool_call>\n" + call + "\n</tool_call>"), Verdict::whole);
  EXPECT_EQ(read("I look.\n" + call), Verdict::whole);
  EXPECT_EQ(read(call + "<"), Verdict::refused);
  expect(Verdict::whole, {"<function=get>\n<parameter=x>\n1\n</parameter>\n</function>"});
  expect(Verdict::refused, {"<function=get_weather>\n<parameter=town>", "<function=absent>",
                            "<tool_call>\n<function=get_weather>\n</function>"});
}

// Seed-OSS has no line ends around values, and GLM has marks of its own around keys and values.
TEST_F(AnswerGrammarTest, CallsWrittenAsTagsOfOtherForms) {
  const std::string seed =
      "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n"
      "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>";
  const std::string glm =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  for (const bool required : {false, true}) {
    use("<seed:tool_call> <function= <parameter= tools", tools(required));
    EXPECT_EQ(read(seed), Verdict::whole);
    EXPECT_EQ(read(seed + "\n" + seed), Verdict::whole);
    expect(Verdict::refused, {"<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo",
                              "<seed:tool_call>\n<function=absent>"});
    for (const bool special : {false, true}) {
      if (special) name_special("<tool_call>", "<arg_key>");
      use("<tool_call> <arg_key> tools", tools(required));
      EXPECT_EQ(read(glm), Verdict::whole);
      EXPECT_EQ(read(glm + "\n" + glm), Verdict::whole);
      expect(Verdict::whole,
             {"<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value>"
              "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"});
      expect(Verdict::refused, {"<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo",
                                "<tool_call>get_weather\n</tool_call>", "<tool_call>absent"});
    }
  }
  use("<tool_call> <arg_key> tools", tools(false));
  expect(Verdict::whole, {"<tool_call>get\n<arg_key>b</arg_key>\n<arg_value>1</arg_value>\n"
                          "</tool_call>"});
}

// A function that the client names is called once, whatever parallel_tool_calls is.
TEST_F(AnswerGrammarTest, ANamedFunctionIsCalledOnce) {
  const OrderedJson list = tools(true).tools;
  for (const OrderedJson& parallel : {OrderedJson(), OrderedJson(true), OrderedJson(false)}) {
    const ToolRequest named =
        tool_request({{"tools", list},
                      {"tool_choice", {{"type", "function"}, {"function", {{"name", "get"}}}}},
                      {"parallel_tool_calls", parallel}});
    const std::string call =
        "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    use("<tool_call> tools", named);
    EXPECT_EQ(read(call), Verdict::whole);
    EXPECT_EQ(read(call + "\n" + call), Verdict::refused);
    use("[TOOL_CALLS] tools", named);
    const std::string item = "{\"name\": \"get\", \"arguments\": {\"a\": 1}}";
    EXPECT_EQ(read("[TOOL_CALLS][" + item + "]"), Verdict::whole);
    EXPECT_EQ(read("[TOOL_CALLS][" + item + ", " + item + "]"), Verdict::refused);
  }
}

// Schemas apply to values between tags as they do to JSON.
TEST_F(AnswerGrammarTest, TagsKeepTheWholeSchema) {
  const auto use_schema = [&](const std::string& schema) {
    OrderedJson tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
    tool["function"]["parameters"] = parse_ordered_json(schema, "schema");
    use("<tool_call> <function= <parameter= tools",
        tool_request({{"tools", OrderedJson::array({tool})}, {"tool_choice", "required"}}));
  };
  const auto call = [&](const std::vector<std::pair<std::string, std::string>>& parameters) {
    std::string text = "<tool_call>\n<function=f>\n";
    for (const auto& [name, value] : parameters)
      text += "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
    return read(text + "</function>\n</tool_call>");
  };
  const auto expect_values = [&](const std::string& property, std::vector<std::string> good,
                                 std::vector<std::string> bad) {
    use_schema(R"({"properties": {"a": )" + property + R"(}, "required": ["a"],
                   "$defs": {"s": {"type": "string", "enum": ["x", "y"]}}})");
    for (const std::string& value : good)
      EXPECT_EQ(call({{"a", value}}), Verdict::whole) << property << value;
    for (const std::string& value : bad)
      EXPECT_EQ(call({{"a", value}}), Verdict::refused) << property << value;
    EXPECT_EQ(call({}), Verdict::refused);
  };
  expect_values(R"({"type": "string"})", {"", "a\nb <c>", "\"1\""}, {});
  expect_values(R"({"type": "string", "pattern": "^[0-9]{3}$"})", {"123"}, {"12", "12x", "1234"});
  expect_values(R"({"pattern": "[0-9]", "maxLength": 3})", {"a1", "1"}, {"ab", "a123", "<1"});
  expect_values(R"({"const": "x y"})", {"x y"}, {"x", "\"x y\""});
  expect_values(R"({"type": "string", "minLength": 2, "maxLength": 3})", {"ab", "a\xC3\xA9\n"},
                {"a", "abcd", "<a"});
  expect_values(R"({"type": "string", "format": "date"})", {"2024-02-28"}, {"2024-02-30", "now"});
  expect_values(R"({"$ref": "#/$defs/s"})", {"x", "y"}, {"z", "\"x\""});
  expect_values(R"({"allOf": [{"$ref": "#/$defs/s"}, {"pattern": "y"}]})", {"y"}, {"x"});
  expect_values(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", {"\"a\"", "null"}, {"a"});
  expect_values(R"({"type": "integer", "maximum": 7})", {"7"}, {"8", "a"});

  use_schema(R"({"$ref": "#/$defs/p", "$defs": {"p": {"type": "object", "properties": {
                 "a": {"type": "integer"}}, "required": ["a"]}}})");
  EXPECT_EQ(call({{"a", "5"}}), Verdict::whole);
  EXPECT_EQ(call({}), Verdict::refused);
  use_schema(R"({"properties": {"a": {"type": "null"}}, "required": ["b"], "minProperties": 1})");
  EXPECT_EQ(call({{"b", "[1]"}}), Verdict::whole);
  EXPECT_EQ(call({{"a", "null"}, {"b", "1"}}), Verdict::whole);
  EXPECT_EQ(call({{"a", "null"}}), Verdict::refused);
  use_schema(R"({"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                           {"properties": {"b": {"const": 2}}, "required": ["b"]}]})");
  EXPECT_EQ(call({{"a", "1"}}), Verdict::whole);
  EXPECT_EQ(call({{"b", "2"}}), Verdict::whole);
  EXPECT_EQ(call({}), Verdict::refused);

  const auto refusal = [&](const std::string& schema) -> std::string {
    try {
      use_schema(schema);
    } catch (const ApiError& e) {
      return e.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  const std::string where = "tools[0].function.parameters";
  EXPECT_THAT(refusal(R"({"properties": {"a": {}, "b": {}}, "minProperties": 2})"),
              HasSubstr(where + "/minProperties"));
  EXPECT_THAT(refusal(R"({"properties": {"a": {}, "b": {}}, "maxProperties": 1})"),
              HasSubstr(where + "/maxProperties"));
  EXPECT_THAT(refusal(R"({"properties": {"a": {"disallow": "null"}}})"),
              HasSubstr(where + "/properties/a/disallow"));
  EXPECT_THAT(refusal(R"({"enum": [{"a": 1}]})"), HasSubstr(where + "/enum"));
  EXPECT_THAT(refusal(R"({"properties": {"a": {"pattern": "^<b>$"}}})"),
              HasSubstr(where + "/properties/a"));
  EXPECT_THAT(refusal(R"({"properties": {"a>b": {}}})"), HasSubstr(where + "/properties/a>b"));
}

TEST_F(AnswerGrammarTest, StrictCallsWithoutAMarkStandInFront) {
  use("tools", tools(false));
  const std::string begin = R"({"name": "get_weather", "parameters": )";
  EXPECT_EQ(read(begin + kGood + "}"), Verdict::whole);
  EXPECT_EQ(read("\n " + begin + kGood + "}"), Verdict::whole);
  EXPECT_EQ(read("So: <|python_tag|>" + begin + kGood + "}"), Verdict::whole);
  EXPECT_EQ(read("{\n  \"name\" :\"get_weather\", \"parameters\": " + std::string(kGood) + "}"),
            Verdict::whole);
  EXPECT_EQ(read(begin + kBad), Verdict::refused);
  EXPECT_EQ(read("<|python_tag|>" + begin + kBad), Verdict::refused);
  EXPECT_EQ(read(begin + kGood), Verdict::unfinished);
  EXPECT_EQ(read("As in " + begin + kBad), Verdict::whole) << "no call, as the answer is read";
  expect(Verdict::whole, {"", "Hello", "{", "{}", R"({"city": "Oslo"})", R"({"name": "get_all"})",
                          R"({"name": "Ann", "parameters": 1})", "<|python_tag|>print(1)"});
}

TEST_F(AnswerGrammarTest, ReasoningIsNoCall) {
  const std::string call = "<tool_call>\n{\"name\": \"absent\"";
  for (const bool special : {false, true}) {
    if (special) name_special("<think>", "</think>");
    use("<tool_call> <think></think> tools", tools(false), "assistant: <think>\n");
    EXPECT_EQ(read("Perhaps " + call), Verdict::whole);
    EXPECT_EQ(read("Perhaps " + call + "</think>No."), Verdict::whole);
    EXPECT_EQ(read("Perhaps.</think>" + call), Verdict::refused);
    use("<tool_call> <think></think> tools", tools(false), "assistant: ");
    EXPECT_EQ(read("<think>" + call + "</think>\n\nNo."), Verdict::whole);
    EXPECT_EQ(read("<think>" + call + "</think>" + call), Verdict::refused);
    EXPECT_EQ(read(call), Verdict::refused);
    use("<tool_call> <think></think> tools", tools(false), "assistant: <think></think>\n");
    EXPECT_EQ(read(call), Verdict::refused);
  }
}

TEST_F(AnswerGrammarTest, NothingIsEnforcedWhereNothingWasAsked) {
  ToolRequest loose = tools(false);
  loose.tools.erase(0);
  EXPECT_EQ(chat_grammar(*loaded_, chat_syntax("<tool_call> tools", ""), loose, std::nullopt, ""),
            nullptr);
}

}  // namespace
}  // namespace walsh
