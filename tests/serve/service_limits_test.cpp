// Tests limits of requests and the errors beyond them, and scores of tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "serve/service_fixture.h"

namespace walsh {
namespace {

using test::Recorded;
using test::ServiceTest;
using testing::HasSubstr;

TEST_F(ServiceTest, WithoutMemoryARequestIsUnavailable) {
  service_ = make([](const OrderedJson&) -> std::string { throw std::bad_alloc(); });
  const Json body = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  const auto reply = post("/v1/chat/completions", body);
  EXPECT_EQ(reply->response.status, 503);
  EXPECT_EQ(reply->json()["error"]["type"], "unavailable_error");
}

// A batch is taken or refused as a whole: nothing of it is evaluated, and nothing has to be ended.
TEST_F(ServiceTest, ABatchThatDoesNotFitIsNotBegun) {
  std::vector<std::shared_ptr<Recorded>> waiting;
  for (int i = 0; i < 11; ++i)
    waiting.push_back(begin("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 2})"));
  const auto reply =
      begin("POST", "/v1/completions", R"({"prompt": ["a", "b"], "n": 2, "stream": true})");
  EXPECT_EQ(reply->response.status, 429);
  while (scheduler_->step()) {
  }
  EXPECT_TRUE(reply->events.empty());
  EXPECT_EQ(scheduler_->counts().requests, 11u);
  EXPECT_EQ(scheduler_->counts().cancelled, 0u);
  EXPECT_EQ(scheduler_->counts().refused, 4u);
}

// Choices may end before the last of them was given to the scheduler, in its own thread.
TEST_F(ServiceTest, ABatchMayEndWhileItBegins) {
  std::thread running([&] { scheduler_->run(); });
  for (int i = 0; i < 50; ++i) {
    const auto reply = begin("POST", "/v1/completions",
                             R"({"prompt": ["a", "b"], "n": 4, "max_tokens": 0, "stream": true})");
    while (scheduler_->counts().ended < static_cast<uint64_t>(8 * (i + 1)))
      std::this_thread::yield();
    EXPECT_EQ(reply->chunks().size(), 8u);
  }
  scheduler_->stop();
  running.join();
}

TEST_F(ServiceTest, WhatNeverFitsIsABadRequest) {
  const auto status = [&](const Json& body) {
    return post("/v1/completions", body)->response.status;
  };
  const auto many = post("/v1/completions", {{"prompt", {"a", "b", "c", "d"}}, {"n", 4}});
  EXPECT_EQ(many->response.status, 400);
  EXPECT_EQ(many->json()["error"]["param"], "prompt");
  EXPECT_FALSE(many->response.headers.contains("Retry-After"));
  // After its first token the grammar is too ambiguous to follow.
  EXPECT_EQ(status({{"prompt", "a"},
                    {"max_tokens", 20},
                    {"grammar", "root ::= \"zq\" x{3000}\nx ::= [a-z ]*"}}),
            400);
  // No tokens are made of a text that cannot fit.
  const auto longest = post("/v1/completions", {{"prompt", std::string(100'000, 'a')}});
  EXPECT_EQ(longest->response.status, 400);
  EXPECT_THAT(longest->response.body, HasSubstr("100000 bytes"));
}

// Clients shorten a conversation if the error has this code.
TEST_F(ServiceTest, ChatsOfManyMegabytesAreBeyondTheContext) {
  service_ = make(make_chat_prompt(*loaded_.chat));
  const Json message = {{"role", "user"}, {"content", std::string(5'000'000, 'a')}};
  const auto reply = post("/v1/chat/completions", {{"messages", {message}}});
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_EQ(reply->json()["error"]["code"], "context_length_exceeded") << reply->response.body;
}

// After every token the text is searched for them, on the thread that continues all texts.
TEST_F(ServiceTest, StopStringsAndBreakersAreShort) {
  for (const char* field : {"stop", "dry_sequence_breakers"}) {
    Json body = {{"prompt", "a"}, {"max_tokens", 1}, {"dry_multiplier", 1}};
    body[field] = {std::string(1024, 'a')};
    EXPECT_EQ(post("/v1/completions", body)->response.status, 200) << field;
    body[field] = {"b", std::string(1025, 'a')};
    const auto reply = post("/v1/completions", body);
    EXPECT_EQ(reply->response.status, 400) << field;
    EXPECT_THAT(reply->response.body, testing::HasSubstr(field));
    EXPECT_LT(reply->response.body.size(), 500);
    body[field] = std::string(1025, 'a');
    EXPECT_EQ(post("/v1/completions", body)->response.status, 400) << field;
  }
}

TEST_F(ServiceTest, LogProbabilitiesOfOneAnswerAreBounded) {
  const std::vector<std::vector<int32_t>> prompts(256, std::vector<int32_t>(250, 5));
  const auto reply =
      post("/v1/completions",
           {{"prompt", prompts}, {"max_tokens", 0}, {"logprobs", 20}, {"echo", true}});
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_EQ(reply->json()["error"]["param"], "logprobs");
}

TEST_F(ServiceTest, HealthWaitsForNobodyAndNobodyForLongTexts) {
  const auto turn = [](const char* path) {
    HttpRequest request;
    request.path = path;
    return turn_of(request);
  };
  for (const char* path : {"/health", "/v1/health", "/metrics"})
    EXPECT_EQ(turn(path), HttpTurn::at_once) << path;
  for (const char* path :
       {"/tokenize", "/detokenize", "/apply-template", "/v1/messages/count_tokens"})
    EXPECT_EQ(turn(path), HttpTurn::one_by_one) << path;
  for (const char* path : {"/v1/completions", "/v1/messages", "/props", "/nothing"})
    EXPECT_EQ(turn(path), HttpTurn::handlers) << path;
}

TEST_F(ServiceTest, NoTokensAreMadeForAClientThatHasGone) {
  struct Gone : test::Recorded {
    void on_gone(std::function<void()> what) override { what(); }
  };
  HttpRequest request;
  request.method = "POST";
  request.headers = {{"host", "localhost"}};
  for (const auto& [path, body] : {std::pair<const char*, Json>{"/tokenize", {{"content", "a b"}}},
                                   {"/detokenize", {{"tokens", {300, 301}}}}}) {
    request.path = path;
    request.body = body.dump();
    const auto reply = std::make_shared<Gone>();
    service_->handle(request, reply);
    EXPECT_EQ(reply->response.status, 503) << path;
  }
}

// Eight bytes of a request may be a hundred of a text.
TEST_F(ServiceTest, TextsOfTokensAreBounded) {
  const std::vector<std::string> bytes = loaded_.tokenizer.token_bytes();
  const auto longest = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const auto id = static_cast<int32_t>(longest - bytes.begin());
  const std::vector<int32_t> all((size_t{16} << 20) / longest->size() + 1, id);
  const auto reply = post("/detokenize", {{"tokens", all}});
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_EQ(reply->json()["error"]["param"], "tokens");
}

// Tokens are told by their bytes, also where a character has several, with their place in the text.
TEST_F(ServiceTest, ScoredTokensAreTheBytesOfTheText) {
  const std::string prompt = "caf\xC3\xA9 \xE6\x97\xA5\xF0\x9F\xA6\x80 in the city";
  const Json body = {
      {"prompt", prompt}, {"max_tokens", 3}, {"temperature", 0}, {"logprobs", 2}, {"echo", true}};
  const Json choice = post("/v1/completions", body)->json()["choices"][0];
  const Json& scores = choice["logprobs"];
  const auto shown = choice["text"].get<std::string>();
  ASSERT_GT(scores["tokens"].size(), 3u) << choice;
  std::string bytes;
  bool any_part = false;
  for (size_t i = 0; i < scores["tokens"].size(); ++i) {
    auto token = scores["tokens"][i].get<std::string>();
    EXPECT_EQ(token.find("\xEF\xBF\xBD"), token.npos) << token;
    // This counts the complete characters before the token.
    size_t characters = 0;
    for (size_t at = 0; at < bytes.size(); ++characters) {
      const auto lead = static_cast<uint8_t>(bytes[at]);
      const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      if (at + size > bytes.size()) break;
      at += size;
    }
    EXPECT_EQ(scores["text_offset"][i], characters) << i;
    const auto id = loaded_.tokenizer.token_id(token);
    if (id && loaded_.tokenizer.is_special(*id)) continue;
    if (token.starts_with("bytes:")) {
      any_part = true;
      std::string part;
      for (size_t at = token.find('x'); at != token.npos; at = token.find('x', at + 1))
        part += static_cast<char>(std::stoi(token.substr(at + 1, 2), nullptr, 16));
      token = part;
    }
    bytes += token;
  }
  EXPECT_TRUE(any_part) << scores["tokens"];
  EXPECT_EQ(bytes, shown);
  EXPECT_TRUE(shown.starts_with(prompt)) << shown;

  Json streamed = body;
  streamed["stream"] = true;
  streamed["stream_options"] = {{"include_usage", true}};
  Json tokens = Json::array(), offsets = Json::array(), values = Json::array();
  const auto chunks = post("/v1/completions", streamed)->chunks();
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].at("usage").is_null(), i + 1 < chunks.size());
    if (chunks[i]["choices"].empty()) continue;
    const Json& some = chunks[i]["choices"][0]["logprobs"];
    if (some.is_null()) continue;
    tokens.insert(tokens.end(), some["tokens"].begin(), some["tokens"].end());
    offsets.insert(offsets.end(), some["text_offset"].begin(), some["text_offset"].end());
    values.insert(values.end(), some["token_logprobs"].begin(), some["token_logprobs"].end());
  }
  EXPECT_EQ(tokens, scores["tokens"]);
  EXPECT_EQ(offsets, scores["text_offset"]);
  EXPECT_EQ(values, scores["token_logprobs"]);
}

}  // namespace
}  // namespace walsh
