// Tests prompts for the text between two others, and the endpoints that take them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "serve/fill_prompt.h"
#include "serve/service_fixture.h"

namespace walsh {
namespace {

using test::ServiceTest;
using testing::HasSubstr;

using Names = std::vector<std::string>;
const Names kQwen = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                     "<|fim_pad|>",    "<|repo_name|>",  "<|file_sep|>"};

// Returns the embedded model's tokenizer with `names` in place of its last tokens.
Tokenizer tokenizer_with(const Names& names) {
  std::ifstream file(std::string(test::kServedModel) + "/tokenizer.json");
  Json json = Json::parse(file);
  Json& model = json["model"];
  int32_t id = 8188;
  for (const std::string& name : names) {
    --id;
    for (auto one = model["vocab"].begin(); one != model["vocab"].end(); ++one)
      if (one.value() == id) {
        model["vocab"].erase(one);
        break;
      }
    model["vocab"][name] = id;
    model["merges"].erase(model["merges"].size() - 1);
    Json token = json["added_tokens"][0];
    token["id"] = id;
    token["content"] = name;
    json["added_tokens"].push_back(token);
  }
  return Tokenizer::from_json(json.dump(), "", "tokenizer.json");
}

std::vector<int32_t> joined(std::initializer_list<std::vector<int32_t>> parts) {
  std::vector<int32_t> all;
  for (const auto& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

class FillTest : public ServiceTest {
 protected:
  void use_tokens(const Names& names) {
    loaded_.tokenizer = tokenizer_with(names);
    service_ = make({});
  }
  std::vector<int32_t> id(const std::string& name) { return {*loaded_.tokenizer.token_id(name)}; }
  std::vector<int32_t> ids(const std::string& text) {
    return loaded_.tokenizer.encode(text, false);
  }
  std::vector<int32_t> prompt(const FillRequest& request, int64_t most = 256) {
    return fill_prompt(loaded_.tokenizer, *fill_tokens(loaded_.tokenizer), request, most);
  }
  std::vector<int32_t> bos() { return {*loaded_.tokenizer.added_bos()}; }
};

TEST_F(FillTest, EveryLineOfModelsHasItsMarks) {
  EXPECT_FALSE(fill_tokens(loaded_.tokenizer));
  for (const Names& names : {Names{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                             Names{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                             Names{"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>",
                                   "<\uff5cfim\u2581end\uff5c>"},
                             Names{"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},
                             Names{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}}) {
    use_tokens(names);
    EXPECT_EQ(prompt({"a = ", "\nb", {}}),
              joined({bos(), id(names[0]), ids("a = "), id(names[1]), ids("\nb"), id(names[2])}))
        << names[0];
  }
  use_tokens({"[PREFIX]", "[SUFFIX]"});
  EXPECT_EQ(prompt({"a = ", "\nb", {}}),
            joined({bos(), id("[SUFFIX]"), ids("\nb"), id("[PREFIX]"), ids("a = ")}));
  use_tokens({"<fim_prefix>", "<fim_suffix>"});
  EXPECT_FALSE(fill_tokens(loaded_.tokenizer));
}

TEST_F(FillTest, OtherFilesStandBeforeThePrefix) {
  use_tokens(kQwen);
  const FillRequest request = {"a = ", "\nb", {{"one.h", "int x;"}, {"two.h", "int y;"}}};
  const auto end = joined({id(kQwen[0]), ids("a = "), id(kQwen[1]), ids("\nb"), id(kQwen[2])});
  const auto two = joined({id(kQwen[5]), ids("two.h\nint y;"), id(kQwen[5]), ids("filename\n")});
  const auto begin = joined({bos(), id(kQwen[4]), ids("myproject\n")});
  const auto whole = prompt(request);
  EXPECT_EQ(whole, joined({begin, id(kQwen[5]), ids("one.h\nint x;"), two, end}));
  // The first file is the first to be left out, and without files there is no project.
  EXPECT_EQ(prompt(request, std::ssize(whole) - 1), joined({begin, two, end}));
  EXPECT_EQ(prompt(request, std::ssize(end) + 1), joined({bos(), end}));
  use_tokens({"<fim_prefix>", "<fim_suffix>", "<fim_middle>"});
  const auto plain = prompt({"a", "b", {{"one.h", "int x;"}}});
  EXPECT_THAT(loaded_.tokenizer.decode(plain, true), HasSubstr("\n\n--- snippet ---\n\nint x;"));
}

TEST_F(FillTest, LongTextsKeepWhatIsNearTheGap) {
  use_tokens(kQwen);
  const auto prefix = ids("one two three four five six seven eight nine ten"), suffix = prefix;
  FillRequest request = {loaded_.tokenizer.decode(prefix, false), "", {}};
  request.suffix = request.prefix;
  const auto cut = prompt(request, 16);  // 12 tokens of both and 4 marks
  EXPECT_EQ(cut, joined({bos(),
                         id(kQwen[0]),
                         {prefix.end() - 9, prefix.end()},
                         id(kQwen[1]),
                         {suffix.begin(), suffix.begin() + 3},
                         id(kQwen[2])}));
  request.prefix = "";
  EXPECT_EQ(
      prompt(request, 10),
      joined(
          {bos(), id(kQwen[0]), id(kQwen[1]), {suffix.begin(), suffix.begin() + 6}, id(kQwen[2])}));
}

TEST_F(FillTest, AllInterfacesFillTheSameText) {
  use_tokens(kQwen);
  const Json infill = {{"input_prefix", "The city"},
                       {"prompt", " of"},
                       {"input_suffix", "is old."},
                       {"n_predict", 6},
                       {"temperature", 0}};
  const Json answer = post("/infill", infill)->json();
  EXPECT_EQ(answer["tokens_evaluated"], prompt({"The city of", "is old.", {}}).size());
  const std::string text = answer["content"];
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(
      post(
          "/v1/completions",
          {{"prompt", "The city of"}, {"suffix", "is old."}, {"max_tokens", 6}, {"temperature", 0}})
          ->json()["choices"][0]["text"],
      text);
  EXPECT_EQ(post("/api/generate", {{"prompt", "The city of"},
                                   {"suffix", "is old."},
                                   {"stream", false},
                                   {"options", {{"num_predict", 6}, {"temperature", 0}}}})
                ->json()["response"],
            text);
  Json more = infill;
  more["input_extra"] = Json::array({{{"text", "London."}}});
  EXPECT_GT(post("/infill", more)->json()["tokens_evaluated"], answer["tokens_evaluated"]);
  more = infill;
  more["stream"] = true;
  std::string streamed;
  const auto reply = post("/infill", more);
  for (const std::string& event : reply->events)
    streamed += parse_json(std::string_view(event).substr(6), "")["content"].get<std::string>();
  EXPECT_EQ(streamed, text);
}

TEST_F(FillTest, TheMiddleEndsAtTheMarksOfTheModel) {
  use_tokens(kQwen);
  for (const char* mark : {"<|fim_pad|>", "<|file_sep|>"}) {
    const Json answer = post("/infill", {{"input_prefix", "a"},
                                         {"input_suffix", "b"},
                                         {"n_predict", 4},
                                         {"logit_bias", {{mark, 100}}}})
                            ->json();
    EXPECT_EQ(answer["stop_type"], "eos") << answer;
    EXPECT_EQ(answer["content"], "");
  }
}

TEST_F(FillTest, WrongRequestsAreRefusedByTheirNames) {
  const Json whole = {{"input_prefix", "a"}, {"input_suffix", "b"}, {"n_predict", 1}};
  const auto refused = post("/infill", whole);
  EXPECT_EQ(refused->response.status, 501);
  EXPECT_THAT(refused->response.body, HasSubstr("cannot fill in text"));
  EXPECT_EQ(refused->json()["error"]["type"], "not_supported_error");
  EXPECT_THAT(post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}})->response.body,
              HasSubstr("'suffix' must be empty"));
  use_tokens(kQwen);
  const std::pair<const char*, Json> cases[] = {
      {"input_prefix", Json()},
      {"input_suffix", 3},
      {"prompt", Json::array({1})},
      {"input_extra", "text"},
      {"input_extra", Json::array({Json::object()})},
      {"input_extra", Json::array({{{"filename", "ok"}}})},
      {"input_extra", Json::array({{{"filename", 1}, {"text", "a"}}})},
      {"input_suffix", std::string(100000, 'a')},
  };
  for (const auto& [key, value] : cases) {
    Json body = whole;
    body[key] = value;
    const auto reply = post("/infill", body);
    EXPECT_EQ(reply->response.status, 400) << body;
    EXPECT_THAT(reply->json()["error"]["param"].get<std::string>(), HasSubstr(key));
  }
  EXPECT_EQ(
      post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}, {"echo", true}})->response.status,
      400);
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1, 2}}, {"suffix", "b"}})->response.status, 400);
}

}  // namespace
}  // namespace walsh
