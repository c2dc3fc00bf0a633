#include "serve/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "io/json.h"
#include "serve/service_fixture.h"
#include "text/stopped_text.h"
#include "walsh/version.h"

namespace walsh {
namespace {

using test::Recorded;
using test::ServiceTest;
using testing::HasSubstr;

TEST_F(ServiceTest, CompletesAText) {
  const std::string prompt = "The city of London is";
  const auto reply =
      post("/v1/completions",
           {{"model", "any"}, {"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0}});
  EXPECT_EQ(reply->response.status, 200) << reply->response.body;
  const Json answer = reply->json();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["choices"][0]["text"], greedy_text(prompt, 12));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], loaded_.tokenizer.encode(prompt, true).size());
}

TEST_F(ServiceTest, StreamsTheSameTextAsEvents) {
  const std::string prompt = "The city of London is";
  const auto reply = post("/v1/completions", {{"prompt", prompt},
                                              {"max_tokens", 12},
                                              {"temperature", 0},
                                              {"stream", true},
                                              {"stream_options", {{"include_usage", true}}}});
  std::string text;
  const auto chunks = reply->chunks();
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    text += chunks[i]["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(chunks[i]["choices"][0]["finish_reason"].is_null(), i + 2 < chunks.size());
  }
  EXPECT_EQ(text, greedy_text(prompt, 12));
  EXPECT_TRUE(chunks.back()["choices"].empty());
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 12);
}

TEST_F(ServiceTest, ChatsThroughItsTemplate) {
  service_ = make([](const OrderedJson& body) {
    return "Q: " + body["messages"][0]["content"].get<std::string>() + " A:";
  });
  const Json body = {{"messages", {{{"role", "user"}, {"content", "London"}}}},
                     {"max_completion_tokens", 6},
                     {"temperature", 0},
                     {"n", 2},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const Json answer = post("/v1/chat/completions", body)->json();
  ASSERT_EQ(answer["choices"].size(), 2u) << answer;
  EXPECT_EQ(answer["object"], "chat.completion");
  const Json& first = answer["choices"][0];
  EXPECT_EQ(first["message"]["role"], "assistant");
  EXPECT_EQ(first["message"]["content"], answer["choices"][1]["message"]["content"]);
  ASSERT_EQ(first["logprobs"]["content"].size(), 6u);
  const Json& token = first["logprobs"]["content"][0];
  EXPECT_EQ(token["top_logprobs"].size(), 2u);
  EXPECT_EQ(token["logprob"], token["top_logprobs"][0]["logprob"]);
  Json streamed = body;
  streamed["stream"] = true;
  streamed["n"] = 1;
  streamed.erase("logprobs");
  std::string text;
  const auto chunks = post("/v1/chat/completions", streamed)->chunks();
  EXPECT_EQ(chunks.front()["choices"][0]["delta"]["role"], "assistant");
  for (const Json& chunk : chunks)
    text += chunk["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, first["message"]["content"].get<std::string>());
  EXPECT_EQ(post("/apply-template", body)->json()["prompt"], "Q: London A:");
}

// The embedded model's template is ChatML.
TEST_F(ServiceTest, MessagesGoThroughTheModelsOwnTemplate) {
  ASSERT_TRUE(loaded_.chat);
  service_ = make(make_chat_prompt(*loaded_.chat));
  const auto prompt = [&](const std::string& body) { return ask("POST", "/apply-template", body); };
  EXPECT_EQ(prompt(R"({"messages": [{"role": "user", "content": "Hi"}]})")->json()["prompt"],
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt(R"({"messages": [{"role": "user", "content":
                [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}],
                "add_generation_prompt": false})")
                ->json()["prompt"],
            "<|im_start|>user\nHi<|im_end|>\n");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": "Hi"})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [1]})", "messages[0]"},
      {R"({"messages": [{"content": "x"}]})", "messages[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": 3})",
       "chat_template_kwargs"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": {"text": "x"}}]})", "messages[0].content"}};
  for (const auto& [body, path] : cases) {
    const auto reply = prompt(body);
    EXPECT_EQ(reply->response.status, 400) << body;
    EXPECT_EQ(reply->json()["error"]["param"], path) << body;
  }
  const auto tools = ask("POST", "/v1/chat/completions",
                         R"({"messages": [{"role": "user", "content": "x"}], "tools": [{}]})");
  EXPECT_EQ(tools->response.status, 400);
  EXPECT_EQ(tools->json()["error"]["param"], "tools[0]");
}

TEST_F(ServiceTest, WithoutATemplateChatIsRefused) {
  const auto reply = post("/v1/chat/completions", {{"messages", Json::array()}});
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_THAT(reply->response.body, HasSubstr("chat template"));
}

TEST_F(ServiceTest, StopStringsEndATextAndAreNotPartOfIt) {
  const std::string whole = greedy_text("The city of London is", 40);
  const std::string stop = whole.substr(whole.size() / 2, 7);
  Json body = {{"prompt", "The city of London is"},
               {"max_tokens", 40},
               {"temperature", 0},
               {"stop", Json::array({"never", stop})}};
  const Json answer = post("/v1/completions", body)->json();
  EXPECT_EQ(answer["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  body["stream"] = true;
  std::string text;
  for (const Json& chunk : post("/v1/completions", body)->chunks())
    text += chunk["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
}

// lm-eval asks so for the likelihood of a text.
TEST_F(ServiceTest, EchoedPromptsHaveTheProbabilitiesOfTheirTokens) {
  const auto ids = loaded_.tokenizer.encode("The city of London is the capital", true);
  const Json answer = post("/v1/completions", {{"prompt", {ids}},
                                               {"max_tokens", 1},
                                               {"temperature", 0},
                                               {"logprobs", 1},
                                               {"echo", true}})
                          ->json();
  const Json& logprobs = answer["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), ids.size() + 1) << answer;
  ASSERT_EQ(logprobs["token_logprobs"].size(), ids.size() + 1);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  Session session(loaded_.model, {64});
  std::vector<std::vector<float>> rows;
  session.forward(
      ids, [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); });
  for (size_t i = 1; i < ids.size(); ++i) {
    double sum = 0;
    for (const float logit : rows[i - 1])
      sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(logprobs["token_logprobs"][i].get<double>(),
                rows[i - 1][static_cast<size_t>(ids[i])] - std::log(sum), 1e-4);
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 1u);
  }
}

TEST_F(ServiceTest, TokensGoThereAndBack) {
  const Json there = post("/tokenize", {{"content", "London calling"}})->json();
  EXPECT_EQ(there["tokens"], loaded_.tokenizer.encode("London calling", false));
  const Json back = post("/detokenize", {{"tokens", there["tokens"]}})->json();
  EXPECT_EQ(back["content"], "London calling");
  for (const char* token : {"-1", "8192", "1e3", "\"a\"", "4294967297"}) {
    const auto reply = ask("POST", "/detokenize", std::string(R"({"tokens": [1, )") + token + "]}");
    EXPECT_EQ(reply->response.status, 400) << token;
    EXPECT_THAT(reply->response.body, HasSubstr("token ids below 8192")) << token;
  }
}

TEST_F(ServiceTest, TellsOfModelsHealthAndMetrics) {
  EXPECT_EQ(ask("GET", "/health")->json()["status"], "ok");
  EXPECT_EQ(ask("GET", "/v1/models")->json()["data"][0]["id"], "tiny");
  EXPECT_EQ(ask("GET", "/v1/models/tiny")->json()["meta"]["n_ctx"], 256);
  EXPECT_EQ(ask("GET", "/v1/models/other")->response.status, 404);
  post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 3}});
  const auto metrics = ask("GET", "/metrics");
  EXPECT_THAT(metrics->response.type, HasSubstr("text/plain"));
  EXPECT_THAT(metrics->response.body, HasSubstr("walsh:requests_ended_total 1\n"));
  EXPECT_THAT(metrics->response.body,
              HasSubstr("walsh:time_to_first_token_seconds_bucket{le=\"+Inf\"} 1\n"));
  service_->drain();
  EXPECT_EQ(ask("GET", "/health")->response.status, 503);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}})->response.status, 503);
}

TEST_F(ServiceTest, ItsDescriptionKnowsItsVersionAndItsLastToken) {
  const auto reply = ask("GET", "/openapi.json");
  EXPECT_EQ(reply->json()["info"]["version"], kVersion);
  EXPECT_EQ(reply->json()["components"]["schemas"]["Tokens"]["items"]["maximum"],
            loaded_.model.config.vocab - 1);
  EXPECT_EQ(reply->response.body.find('@'), std::string::npos);
}

TEST_F(ServiceTest, WrongFieldsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "a", "temperature": "hot"})", "'temperature' must be a number"},
      {R"({"prompt": "a", "temperature": -1})", "'temperature' must be a number from 0"},
      {R"({"prompt": "a", "top_p": 2})", "'top_p'"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "'max_tokens' must be an integer"},
      {R"({"prompt": "a", "n": 9})", "'n' must be an integer from 1 to 8"},
      {R"({"prompt": "a", "best_of": 2})", "'best_of' must be 1, the same as 'n'"},
      {R"({"prompt": "a", "n": 2, "best_of": 1})", "'best_of' must be 2, the same as 'n'"},
      {R"({"prompt": "a", "best_of": "x"})", "'best_of' must be an integer"},
      {R"({"prompt": "a", "suffix": "b"})", "'suffix' must be empty"},
      {R"({"prompt": "a", "logprobs": 1, "n_probs": 1})", "'n_probs'"},
      {R"({"prompt": "a", "logprobs": 21})", "'logprobs'"},
      {R"({"prompt": "a", "stop": 3})", "'stop'"},
      {R"({"prompt": "a", "stream": "yes"})", "'stream' must be a boolean"},
      {R"({"prompt": "a", "stream_options": {"include_usage": 1}})",
       "'stream_options.include_usage'"},
      {R"({"prompt": "a", "logit_bias": {"9999": 1}})", "'logit_bias.9999'"},
      {R"({"prompt": "a", "logit_bias": {"1": "x"}})", "'logit_bias.1' must be a number"},
      {R"({"prompt": "a", "response_format": {"type": "xml"}})", "'response_format.type'"},
      {R"({"prompt": [1, true]})", "'prompt'"},
      {R"({"prompt": [1, 99999999]})", "'prompt'"},
      {R"({"prompt": {}})", "'prompt'"},
      {R"({"prompt": []})", "'prompt'"},
      {R"({"prompt": [[]]})", "no tokens"},
      {R"({})", "'prompt'"},
      {R"([])", "must be an object"},
      {R"({"prompt": "a")", "the request's body"},
      {R"({"prompt": "a", "temperature": 1e999})", "body"},
  };
  for (const auto& [body, message] : cases) {
    const auto reply = ask("POST", "/v1/completions", body);
    EXPECT_EQ(reply->response.status, 400) << body;
    EXPECT_THAT(reply->json()["error"]["message"].get<std::string>(), HasSubstr(message)) << body;
    EXPECT_EQ(reply->json()["error"]["type"], "invalid_request_error");
  }
  const auto long_one = post("/v1/completions", {{"prompt", std::vector<int32_t>(257, 1)}});
  EXPECT_EQ(long_one->response.status, 400);
  EXPECT_THAT(long_one->response.body, HasSubstr("but the prompt has 257"));
}

TEST_F(ServiceTest, FieldsThatAskForNothingElseAreTaken) {
  const auto usual = post(
      "/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}, {"best_of", 1}, {"suffix", nullptr}});
  EXPECT_EQ(usual->response.status, 200);
}

TEST_F(ServiceTest, NamesInPathsMayBeEncoded) {
  names_.model_name = "org/tiny";
  service_ = make({});
  for (const char* name : {"org%2Ftiny", "org%2ftiny", "org/tiny", "%6Frg/tiny"})
    EXPECT_EQ(ask("GET", std::string("/v1/models/") + name)->json()["id"], "org/tiny") << name;
  for (const char* name : {"org%2tiny", "org%", "org%252Ftiny"})
    EXPECT_EQ(ask("GET", std::string("/v1/models/") + name)->response.status, 404) << name;
}

TEST_F(ServiceTest, OtherMethodsAreToldWhichThereAre) {
  EXPECT_EQ(ask("GET", "/v1/completions")->response.headers["Allow"], "POST");
  EXPECT_EQ(ask("POST", "/v1/models/tiny", "{}")->response.headers["Allow"], "GET, HEAD");
  EXPECT_FALSE(ask("GET", "/nothing")->response.headers.contains("Allow"));
}

TEST_F(ServiceTest, AQuestionAboutTheWholeServerIsAnsweredWithItsMethods) {
  const HttpResponse response = ask("OPTIONS", "*")->response;
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(response.headers.at("Allow"), "GET, POST, OPTIONS");
}

// Clients in JavaScript send fields of their own, for which a browser asks first.
TEST_F(ServiceTest, AllowedPagesMaySendAnyField) {
  const auto preflight = [&](const std::string& origin) {
    return ask("OPTIONS", "/v1/chat/completions", "",
               {{"origin", origin},
                {"access-control-request-method", "POST"},
                {"access-control-request-headers", "content-type,x-stainless-os"}})
        ->response;
  };
  names_.origins = {"http://a", "*"};
  service_ = make({});
  HttpResponse response = preflight("http://b");
  EXPECT_EQ(response.headers["Access-Control-Allow-Origin"], "http://b");
  EXPECT_EQ(response.headers["Access-Control-Allow-Headers"], "content-type,x-stainless-os");
  names_.origins = {"http://a"};
  service_ = make({});
  response = preflight("http://b");
  EXPECT_FALSE(response.headers.contains("Access-Control-Allow-Origin"));
  EXPECT_THAT(response.headers["Access-Control-Allow-Headers"],
              testing::Not(HasSubstr("x-stainless-os")));
}

TEST_F(ServiceTest, ErrorsOfTheConnectionHaveTheFormOfTheirInterface) {
  HttpRequest request;
  request.path = "/v1/messages";
  const Json messages = parse_json(service_->error_body(413, "too large", request).body, "error");
  EXPECT_EQ(messages["type"], "error");
  EXPECT_EQ(messages["error"]["message"], "too large");
  request.path = "/v1/completions";
  EXPECT_EQ(parse_json(service_->error_body(413, "too large", request).body, "e")["error"]["code"],
            413);
}

TEST_F(ServiceTest, UnknownPathsAndMethodsAreRefused) {
  EXPECT_EQ(ask("GET", "/v1/none")->response.status, 404);
  EXPECT_EQ(ask("GET", "/v1/completions")->response.status, 405);
  EXPECT_EQ(ask("POST", "/health")->response.status, 405);
}

TEST_F(ServiceTest, KeysHostsAndOriginsDecideWhoMayAsk) {
  names_.api_keys = {"one", "two"};
  names_.hosts = {"walsh.example"};
  names_.origins = {"https://page.example"};
  service_ = make({});
  EXPECT_EQ(ask("GET", "/health")->response.status, 200);
  EXPECT_EQ(ask("GET", "/v1/models")->response.status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"authorization", "Bearer on"}})->response.status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"authorization", "Bearer two"}})->response.status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"authorization", "bearer two"}})->response.status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", {{"x-api-key", "one"}})->response.status, 200);
  EXPECT_EQ(ask("GET", "/health", "", {{"host", "evil.example"}})->response.status, 403);
  EXPECT_EQ(ask("GET", "/health", "", {{"host", "WALSH.example:80"}})->response.status, 200);
  EXPECT_EQ(ask("GET", "/health", "", {{"host", "[::1]:80"}})->response.status, 200);
  EXPECT_EQ(ask("GET", "/health", "", {{"host", "localhost.:80"}})->response.status, 200);
  EXPECT_EQ(ask("GET", "/health", "", {{"host", "evil.example."}})->response.status, 403);
  const auto from = [&](const std::string& origin) {
    return ask("GET", "/health", "", {{"origin", origin}})->response;
  };
  const HttpResponse known = from("https://page.example");
  EXPECT_EQ(known.headers.at("Access-Control-Allow-Origin"), "https://page.example");
  EXPECT_EQ(from("https://evil.example").status, 403);
  EXPECT_FALSE(from("https://evil.example").headers.contains("Access-Control-Allow-Origin"));
  EXPECT_EQ(ask("OPTIONS", "/v1/completions")->response.status, 204);
}

// Without reading the answers they could still keep the model busy.
TEST_F(ServiceTest, PagesOfOtherSitesCannotEvenSend) {
  const auto from = [&](const std::string& origin) {
    return ask("POST", "/tokenize", R"({"content": "a"})",
               {{"origin", origin}, {"content-type", "text/plain"}})
        ->response.status;
  };
  EXPECT_EQ(from("http://127.0.0.1:8080"), 200);
  EXPECT_EQ(from("http://127.0.0.1:8081"), 403);
  EXPECT_EQ(from("https://evil.example"), 403);
  EXPECT_EQ(from("null"), 403);
}

TEST_F(ServiceTest, ThePageRunsItsOwnScriptAlone) {
  names_.api_keys = {"secret"};
  service_ = make({});
  const HttpResponse page = ask("GET", "/")->response;
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  const std::string& policy = page.headers.at("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("require-trusted-types-for 'script'"));
  const size_t at = policy.find("'nonce-");
  ASSERT_NE(at, policy.npos);
  const std::string nonce = policy.substr(at + 7, policy.find('\'', at + 7) - at - 7);
  EXPECT_THAT(page.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(page.body, HasSubstr("<style nonce=\"" + nonce + "\">"));
  for (const char* foreign :
       {"@NONCE@", "@SAMPLING@", "@SCRIPT@", " src=", "innerHTML", "secret", "@import"})
    EXPECT_THAT(page.body, testing::Not(HasSubstr(foreign)));
  EXPECT_NE(ask("GET", "/")->response.body, page.body) << "a nonce is for one answer";
}

TEST_F(ServiceTest, TellsWhatAPageShows) {
  const Json props = ask("GET", "/props")->json();
  EXPECT_EQ(props["model_alias"], "tiny");
  EXPECT_EQ(props["model_path"], loaded_.path);
  EXPECT_EQ(props["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(props["eos_token"], "<|end_of_text|>");
  EXPECT_EQ(props["chat_template"], loaded_.chat->source(false));
  EXPECT_EQ(props["n_ctx"], 256);
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["bits_per_weight"], 16.0);
  EXPECT_EQ(props["cache_type"], "f16");
  EXPECT_EQ(props["has_chat_template"], false);
  const SamplerOptions sampler = loaded_.generation.sampler({});
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], sampler.temperature);
}

TEST_F(ServiceTest, AClientThatGoesAwayFreesItsPlace) {
  const auto reply =
      begin("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})");
  for (int step = 0; step < 5; ++step)
    scheduler_->step();
  ASSERT_TRUE(reply->gone);
  EXPECT_FALSE(reply->done);
  reply->gone();
  while (scheduler_->step()) {
  }
  EXPECT_EQ(scheduler_->counts().cancelled, 1u);
  EXPECT_LT(scheduler_->counts().generated_tokens, 7u);
}

// It may have closed its own side alone and wait for the answer, which a part of the text is not.
TEST_F(ServiceTest, ACancelledTextIsNoAnswer) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    service_ = make([](const OrderedJson&) { return "a"; });
    const auto reply = begin(
        "POST", path, R"({"prompt": "a", "messages": [], "max_tokens": 200, "ignore_eos": true})");
    for (int step = 0; step < 5; ++step)
      scheduler_->step();
    ASSERT_TRUE(reply->gone);
    reply->gone();
    while (scheduler_->step()) {
    }
    EXPECT_TRUE(reply->done);
    EXPECT_EQ(reply->response.status, 503) << reply->response.body;
  }
  // A text that its own stop string ends is whole.
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"prompt": "The", "stop": ["e", "a", " "]})")
                ->response.status,
            200);
}

// A program that asks with HTTP/1.0 need not name the server.
TEST_F(ServiceTest, RequestsWithoutAHostAreNoPagesOfOtherSites) {
  const auto reply = std::make_shared<Recorded>();
  HttpRequest request;
  request.method = "GET";
  request.path = "/health";
  service_->handle(request, reply);
  EXPECT_EQ(reply->response.status, 200) << reply->response.body;
  EXPECT_EQ(ask("GET", "/health", "", {{"host", ""}})->response.status, 403);
}

TEST_F(ServiceTest, AFullQueueIsSaidAtOnce) {
  std::vector<std::shared_ptr<Recorded>> waiting;
  for (int i = 0; i < 12; ++i)
    waiting.push_back(begin("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 2})"));
  const auto reply = begin("POST", "/v1/completions", R"({"prompt": "a", "stream": true, "n": 3})");
  EXPECT_EQ(reply->response.status, 429);
  EXPECT_TRUE(reply->response.headers.contains("Retry-After"));
  while (scheduler_->step()) {
  }
  for (const auto& one : waiting)
    EXPECT_EQ(one->response.status, 200);
}

TEST(StoppedText, HoldsBackWhatMayBecomeAStop) {
  ThreadPool pool(1);
  LoadOptions options;
  options.pool = &pool;
  const LoadedModel model = load_model(test::kServedModel, nullptr, options);
  const auto ids = model.tokenizer.encode("one two three four", false);
  StoppedText text(model.tokenizer, {}, {"", "two thr", "fourty"});
  std::string shown;
  for (const int32_t id : ids) {
    shown += text.push(id);
    EXPECT_EQ(shown.find("two t"), std::string::npos);
  }
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(shown + text.finish(), "one ");
  StoppedText open(model.tokenizer, {}, {"fourty"});
  shown.clear();
  for (const int32_t id : ids)
    shown += open.push(id);
  EXPECT_EQ(shown, "one two three ");
  EXPECT_EQ(shown + open.finish(), "one two three four");
}

}  // namespace
}  // namespace walsh
