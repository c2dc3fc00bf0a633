// What models may write where tools are required or strict, by texts that a model might write: no
// model is asked.
#include "serve/answer_grammar.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "serve/api_error.h"

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
  // Two texts become special tokens.
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
    grammar_ = chat_grammar(*loaded_, chat_syntax(source, prompt), tools, std::nullopt);
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

  ThreadPool pool_{2};
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

// The mark, what goes on to the arguments, and what stands behind them.
struct Form {
  const char *source, *begin, *end, *between;
};
constexpr Form kJsonForms[] = {
    {"<tool_call> tools",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", "}\n</tool_call>", "\n"},
    {"[TOOL_CALLS] tools", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": ", "}]",
     nullptr},
    {"[TOOL_CALLS] [ARGS] tools", "[TOOL_CALLS]get_weather[ARGS]", "", ""},
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
      "<function=get_weather>\n<parameter=city>\n\"Rome\"\n</parameter>\n<parameter=days>\n3\n"
      "</parameter>\n</function>";
  EXPECT_EQ(read("I look.\n<tool_call>\n" + call + "\n</tool_call>"), Verdict::whole);
  EXPECT_EQ(read("I look.\n" + call), Verdict::whole);
  EXPECT_EQ(read(call + "<"), Verdict::refused);
  expect(Verdict::whole, {"<function=get>\n<parameter=x>\n1\n</parameter>\n</function>"});
  expect(Verdict::refused, {"<function=get_weather>\n<parameter=town>", "<function=absent>",
                            "<tool_call>\n<function=get_weather>\n</function>"});
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
  EXPECT_EQ(chat_grammar(*loaded_, chat_syntax("<tool_call> tools", ""), loose, std::nullopt),
            nullptr);
}

}  // namespace
}  // namespace walsh
