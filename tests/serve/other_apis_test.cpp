// Tests llama.cpp's /completion and Ollama's interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/service_fixture.h"
#include "walsh/version.h"

namespace walsh {
namespace {

using test::Recorded;
using test::ServiceTest;
using testing::HasSubstr;

constexpr const char* kPrompt = "The city of London is";

class OtherApis : public ServiceTest {
 protected:
  // Returns lines of JSON.
  static std::vector<Json> lines(const Recorded& reply) {
    EXPECT_EQ(reply.response.type, "application/x-ndjson");
    std::vector<Json> all;
    for (const std::string& line : reply.events) {
      EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
      all.push_back(parse_json(line, "line"));
    }
    return all;
  }
  static std::vector<Json> events(const Recorded& reply) {
    EXPECT_EQ(reply.response.type, kEventStream);
    std::vector<Json> all;
    for (const std::string& event : reply.events)
      all.push_back(parse_json(std::string_view(event).substr(6), "event"));
    return all;
  }
  std::vector<int32_t> ids(const std::string& text) { return loaded_.tokenizer.encode(text, true); }

  // Makes a chat whose prompt is its last message.
  void use_template() {
    service_ = make([](const OrderedJson& body) {
      return body["messages"].back()["content"].get<std::string>();
    });
  }
};

TEST_F(OtherApis, TokenIdsComeOnRequest) {
  Json body = {{"prompt", kPrompt}, {"max_tokens", 5}, {"temperature", 0}};
  EXPECT_FALSE(post("/v1/completions", body)->json()["choices"][0].contains("token_ids"));
  body["return_token_ids"] = true;
  const Json choice = post("/v1/completions", body)->json()["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], ids(kPrompt));
  EXPECT_EQ(choice["token_ids"].size(), 5);
  body["stream"] = true;
  Json streamed = Json::array(), prompt;
  for (const Json& chunk : post("/v1/completions", body)->chunks()) {
    for (const Json& id : chunk["choices"][0].value("token_ids", Json::array()))
      streamed.push_back(id);
    if (chunk["choices"][0].contains("prompt_token_ids"))
      prompt = chunk["choices"][0]["prompt_token_ids"];
  }
  EXPECT_EQ(streamed, choice["token_ids"]);
  EXPECT_EQ(prompt, choice["prompt_token_ids"]);
}

TEST_F(OtherApis, EveryChunkHasTheUsageSoFarOnRequest) {
  const auto chunks = post("/v1/completions",
                           {{"prompt", kPrompt},
                            {"max_tokens", 5},
                            {"stream", true},
                            {"stream_options",
                             {{"include_usage", true}, {"continuous_usage_stats", true}}}})
                          ->chunks();
  int64_t tokens = 0;
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk["usage"]["prompt_tokens"], ids(kPrompt).size());
    EXPECT_GE(chunk["usage"]["completion_tokens"], tokens);
    tokens = chunk["usage"]["completion_tokens"];
  }
  EXPECT_EQ(tokens, 5);
}

TEST_F(OtherApis, AnthropicsStreamBeginsWithTheTokensOfThePrompt) {
  use_template();
  const auto reply = post("/v1/messages", {{"messages", {{{"role", "user"}, {"content", kPrompt}}}},
                                           {"max_tokens", 3},
                                           {"stream", true}});
  const std::string& first = reply->events.front();
  const Json start = parse_json(std::string_view(first).substr(first.find("data: ") + 6), "event");
  EXPECT_EQ(start["type"], "message_start");
  EXPECT_EQ(start["message"]["usage"]["input_tokens"],
            loaded_.tokenizer.encode(kPrompt, false).size());
}

TEST_F(OtherApis, LlamasCompletionHasItsFields) {
  const Json answer = post("/completion", {{"prompt", kPrompt},
                                           {"n_predict", 12},
                                           {"temperature", 0},
                                           {"seed", 7},
                                           {"return_tokens", true}})
                          ->json();
  EXPECT_EQ(answer["content"], greedy_text(kPrompt, 12));
  EXPECT_EQ(answer["tokens"].size(), 12);
  EXPECT_EQ(answer["tokens_predicted"], 12);
  EXPECT_EQ(answer["tokens_evaluated"], ids(kPrompt).size());
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["stopping_word"], "");
  EXPECT_EQ(answer["truncated"], false);
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_THAT(answer["prompt"].get<std::string>(), HasSubstr(kPrompt));
  EXPECT_EQ(answer["generation_settings"]["seed"], 7);
  EXPECT_EQ(answer["generation_settings"]["n_predict"], 12);
  EXPECT_EQ(answer["generation_settings"]["temperature"], 0);
  EXPECT_EQ(answer["timings"]["predicted_n"], 12);
}

TEST_F(OtherApis, LlamasCompletionStreamsTheSameText) {
  const auto pieces = events(*post(
      "/completion",
      {{"prompt", kPrompt}, {"n_predict", 12}, {"temperature", 0}, {"stream", true}}));
  std::string text;
  size_t tokens = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    text += pieces[i]["content"].get<std::string>();
    tokens += pieces[i]["tokens"].size();
    EXPECT_EQ(pieces[i]["stop"], i + 1 == pieces.size());
  }
  EXPECT_EQ(text, greedy_text(kPrompt, 12));
  EXPECT_EQ(tokens, 12);
  EXPECT_EQ(pieces.back()["tokens_predicted"], 12);
  EXPECT_EQ(pieces.back()["tokens_evaluated"], ids(kPrompt).size());
  EXPECT_EQ(pieces.back()["stop_type"], "limit");
}

TEST_F(OtherApis, LlamasCompletionSaysWhyItEnded) {
  const std::string text = greedy_text(kPrompt, 12);
  const std::string word = text.substr(text.size() / 2, 4);
  const Json answer = post("/completion", {{"prompt", kPrompt},
                                           {"n_predict", 12},
                                           {"temperature", 0},
                                           {"stop", Json::array({word})}})
                          ->json();
  EXPECT_EQ(answer["stop_type"], "word");
  EXPECT_EQ(answer["stopping_word"], word);
  EXPECT_EQ(answer["content"], text.substr(0, text.find(word)));
}

TEST_F(OtherApis, LlamasCompletionTakesSeveralPromptsAndTokens) {
  const Json parts = Json::array({*loaded_.tokenizer.added_bos(), "Rome"});
  const Json answer =
      post("/completion",
           {{"prompt",
             Json::array(
                 {kPrompt,
                  ids("Paris"),
                  {{"prompt_string", "Rome"}},
                  parts,
                  {{"content", Json::array({{{"type", "text"}, {"text", "The city"}},
                                            {{"type", "text"}, {"text", " of London is"}}})}}})},
            {"n_predict", 3},
            {"temperature", 0}})
          ->json();
  ASSERT_EQ(answer.size(), 5);
  EXPECT_EQ(answer[3]["content"], greedy_text("Rome", 3));
  EXPECT_EQ(answer[4]["content"], greedy_text(kPrompt, 3));
  EXPECT_EQ(answer[2]["content"], greedy_text("Rome", 3));
  EXPECT_EQ(answer[0]["content"], greedy_text(kPrompt, 3));
  EXPECT_EQ(answer[1]["content"], greedy_text("Paris", 3));
  EXPECT_EQ(answer[1]["index"], 1);
  EXPECT_EQ(answer[1]["tokens_evaluated"], ids("Paris").size());
}

TEST_F(OtherApis, LlamasCompletionHasProbabilitiesWithIds) {
  Json body = {{"prompt", kPrompt}, {"n_predict", 4}, {"temperature", 0}, {"n_probs", 3}};
  const Json answer = post("/completion", body)->json();
  const Json& scores = answer["completion_probabilities"];
  ASSERT_EQ(scores.size(), 4);
  std::string text;
  for (const Json& score : scores) {
    EXPECT_EQ(score["top_logprobs"].size(), 3);
    EXPECT_EQ(score["top_logprobs"][0]["id"], score["id"]);  // the text is greedy
    EXPECT_LE(score["logprob"], 0);
    text += score["token"].get<std::string>();
  }
  EXPECT_EQ(text, answer["content"].get<std::string>());
  body["stream"] = true;
  Json streamed = Json::array();
  for (const Json& piece : events(*post("/completion", body)))
    for (const Json& score : piece.value("completion_probabilities", Json::array()))
      streamed.push_back(score);
  EXPECT_EQ(streamed, scores);
}

TEST_F(OtherApis, LlamasCompletionTellsItsBiases) {
  Json body = {{"prompt", kPrompt}, {"n_predict", 3}, {"logit_bias", {{" the", -2}}}};
  const int32_t the = loaded_.tokenizer.encode(" the", false).front();
  const Json bias = {{"token", the}, {"bias", -2}};
  EXPECT_EQ(post("/completion", body)->json()["generation_settings"]["logit_bias"],
            Json::array({bias}));
  body["logit_bias"] = Json::array({Json::array({" the", -2})});
  body["ignore_eos"] = true;
  const Json all = post("/completion", body)->json()["generation_settings"]["logit_bias"];
  EXPECT_EQ(all[0], bias);
  EXPECT_EQ(all.size(), 1 + loaded_.generation.stop_ids().size());
  EXPECT_TRUE(all[1]["bias"].is_null());
}

TEST_F(OtherApis, LlamasCompletionAnswersOnlyTheFieldsAskedFor) {
  const Json answer =
      post("/completion",
           {{"prompt", kPrompt},
            {"n_predict", 3},
            {"response_fields", Json::array({"content", "generation_settings/n_predict", "none"})}})
          ->json();
  EXPECT_EQ(answer.size(), 2);
  EXPECT_TRUE(answer.contains("content"));
  EXPECT_EQ(answer["generation_settings/n_predict"], 3);
}

TEST_F(OtherApis, LlamasCompletionRefusesWhatItCannotDo) {
  const std::pair<const char*, Json> cases[] = {
      {"n_probs", 21},
      {"post_sampling_probs", true},
      {"t_max_predict_ms", 5},
      {"image_data", Json::array({Json::object()})},
      {"response_fields", "content"},
      {"response_fields", Json::array({"a~"})},
      {"n_predict", -3},
      {"prompt", {{"prompt_string", 3}}},
      {"prompt", {{"prompt_string", "a"}, {"multimodal_data", Json::array({"AA"})}}},
  };
  for (const auto& [key, value] : cases) {
    Json body = {{"prompt", "a"}, {"n_predict", 1}};
    body[key] = value;
    const auto reply = post("/completion", body);
    EXPECT_EQ(reply->response.status, 400) << body;
    EXPECT_FALSE(reply->json()["error"]["message"].get<std::string>().empty());
  }
  EXPECT_EQ(ask("POST", "/completion", "{}")->response.status, 400);
  EXPECT_EQ(ask("POST", "/completion", "[]")->response.status, 400);
}

TEST_F(OtherApis, OllamaGeneratesWithAndWithoutStream) {
  Json body = {{"model", "tiny"},
               {"prompt", kPrompt},
               {"raw", true},
               {"stream", false},
               {"options", {{"num_predict", 12}, {"temperature", 0}}}};
  const Json answer = post("/api/generate", body)->json();
  EXPECT_EQ(answer["response"], greedy_text(kPrompt, 12));
  EXPECT_EQ(answer["done"], true);
  EXPECT_EQ(answer["done_reason"], "length");
  EXPECT_EQ(answer["eval_count"], 12);
  EXPECT_EQ(answer["prompt_eval_count"], ids(kPrompt).size());
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_GT(answer["total_duration"], 0);
  body.erase("stream");  // it is the default
  const auto pieces = lines(*post("/api/generate", body));
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    text += pieces[i]["response"].get<std::string>();
    EXPECT_EQ(pieces[i]["done"], i + 1 == pieces.size());
  }
  EXPECT_EQ(answer["response"], text);
  EXPECT_EQ(pieces.back()["eval_count"], 12);
}

TEST_F(OtherApis, OllamaChatsThroughTheTemplate) {
  use_template();
  Json body = {{"messages", {{{"role", "user"}, {"content", kPrompt}}}},
               {"options", {{"num_predict", 6}, {"temperature", 0}}}};
  const auto pieces = lines(*post("/api/chat", body));
  std::string text;
  for (const Json& piece : pieces) {
    EXPECT_EQ(piece["message"]["role"], "assistant");
    text += piece["message"]["content"].get<std::string>();
  }
  EXPECT_FALSE(text.empty());
  body["stream"] = false;
  const Json answer = post("/api/chat", body)->json();
  EXPECT_EQ(answer["message"]["content"], text);
  EXPECT_EQ(answer["done_reason"], "length");
}

TEST_F(OtherApis, OllamaLoadsAModelThatIsAskedNothing) {
  const Json chat = post("/api/chat", {{"model", "tiny"}, {"messages", Json::array()}})->json();
  EXPECT_EQ(chat["done_reason"], "load");
  EXPECT_EQ(chat["message"]["content"], "");
  EXPECT_EQ(post("/api/generate", {{"model", "tiny"}})->json()["response"], "");
}

TEST_F(OtherApis, OllamaKnowsTheModel) {
  const Json tags = ask("GET", "/api/tags")->json()["models"];
  ASSERT_EQ(tags.size(), 1);
  EXPECT_EQ(tags[0]["name"], "tiny");
  EXPECT_EQ(tags[0]["details"]["family"], "llama");
  EXPECT_EQ(ask("GET", "/api/ps")->json()["models"][0]["size_vram"], 0);
  const Json shown = post("/api/show", {{"model", "tiny"}})->json();
  EXPECT_EQ(shown["capabilities"][0], "completion");
  EXPECT_EQ(shown["model_info"]["llama.context_length"], 256);
  EXPECT_TRUE(ask("GET", "/api/version")->json()["version"].is_string());
}

TEST_F(OtherApis, OllamaErrorsAreTextsThatNameItsFields) {
  const std::pair<Json, const char*> cases[] = {
      {{{"prompt", "a"}, {"options", {{"temperature", "hot"}}}}, "temperature"},
      {{{"prompt", "a"}, {"options", {{"num_predict", -3}}}}, "options.num_predict"},
      {{{"prompt", "a"}, {"options", 3}}, "options"},
      {{{"prompt", "a"}, {"format", "xml"}}, "format"},
      {{{"prompt", "a"}, {"images", Json::array({"AA"})}}, "images"},
      {{{"prompt", 3}}, "prompt"},
  };
  for (const auto& [body, field] : cases) {
    const auto reply = post("/api/generate", body);
    EXPECT_EQ(reply->response.status, 400) << body;
    EXPECT_THAT(reply->json()["error"].get<std::string>(), HasSubstr(field)) << body;
  }
  EXPECT_TRUE(ask("GET", "/api/none")->json()["error"].is_string());
}

}  // namespace
}  // namespace walsh
