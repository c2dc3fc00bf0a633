// Embeddings and rankings: answers in all forms, and every refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "api/embedding.h"
#include "model/model_support.h"
#include "serve/service_fixture.h"

namespace walsh {
namespace {

using test::ServiceTest;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<float> values_of(const Json& list) {
  return list.get<std::vector<float>>();
}

std::vector<float> from_base64(const std::string& text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

double length(const std::vector<float>& values) {
  double squares = 0;
  for (const float v : values)
    squares += double{v} * double{v};
  return std::sqrt(squares);
}

class EmbeddingsTest : public ServiceTest {
 protected:
  std::vector<int32_t> ids(const std::string& text) { return loaded_.tokenizer.encode(text, true); }
  // Returns the library's embedding of one text.
  std::vector<float> expected(const std::string& text, const EmbeddingOptions& options = {}) {
    Scheduler scheduler(loaded_.model, SessionOptions{.max_positions = 256});
    const std::vector<std::vector<int32_t>> prompts = {ids(text)};
    return embed_texts(scheduler, prompts, embedding_form(loaded_, options)).front();
  }
  std::vector<float> embedding(const Json& body) {
    return values_of(post("/v1/embeddings", body)->json()["data"][0]["embedding"]);
  }
  void serve_with(const SchedulerOptions& options) {
    service_.reset();
    scheduler_ = std::make_unique<Scheduler>(loaded_.model, options);
    service_ = make({});
  }
  Json refusal(const std::string& path, const Json& body) {
    const auto reply = post(path, body);
    EXPECT_EQ(reply->response.status, 400) << body;
    return reply->json()["error"];
  }
};

TEST_F(EmbeddingsTest, TextsAndTokensGiveTheSameInTheirOrder) {
  const std::vector<std::string> texts = {"The city of London", "a", "Rivers freeze in winter."};
  const Json answer = post("/v1/embeddings", {{"input", texts}, {"model", "any"}})->json();
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "tiny");
  ASSERT_EQ(answer["data"].size(), texts.size());
  size_t tokens = 0;
  Json lists = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(answer["data"][i]["object"], "embedding");
    EXPECT_EQ(answer["data"][i]["index"], i);
    const auto found = values_of(answer["data"][i]["embedding"]);
    EXPECT_THAT(found, ElementsAreArray(expected(texts[i])));
    EXPECT_EQ(std::ssize(found), loaded_.model.config.hidden);
    EXPECT_NEAR(length(found), 1, 1e-5);
    tokens += ids(texts[i]).size();
    lists.push_back(ids(texts[i]));
  }
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", tokens}, {"total_tokens", tokens}}));
  const Json of_tokens = post("/v1/embeddings", {{"input", lists}})->json();
  EXPECT_EQ(of_tokens["data"], answer["data"]);
  EXPECT_EQ(embedding({{"input", ids(texts[0])}}), values_of(answer["data"][0]["embedding"]));
  EXPECT_EQ(embedding({{"input", texts[1]}}), values_of(answer["data"][1]["embedding"]));
}

TEST_F(EmbeddingsTest, MoreTextsThanTheSchedulerTakesAtOnceAreReadInPortions) {
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i)  // 4 running and 8 waiting
    texts.push_back("number " + std::to_string(i));
  const Json answer = post("/v1/embeddings", {{"input", texts}})->json();
  ASSERT_EQ(answer["data"].size(), texts.size());
  for (const size_t i : {size_t{0}, size_t{17}, size_t{39}})
    EXPECT_THAT(values_of(answer["data"][i]["embedding"]), ElementsAreArray(expected(texts[i])));
}

TEST_F(EmbeddingsTest, Base64IsTheSameValues) {
  for (const int64_t dimensions : {1, 2, 3, 64}) {
    Json body = {{"input", "London"}, {"dimensions", dimensions}};
    const auto floats = embedding(body);
    ASSERT_EQ(std::ssize(floats), dimensions);
    body["encoding_format"] = "base64";
    const Json answer = post("/v1/embeddings", body)->json();
    EXPECT_EQ(from_base64(answer["data"][0]["embedding"].get<std::string>()), floats);
  }
}

TEST_F(EmbeddingsTest, FewerDimensionsHaveUnitLengthAgain) {
  const auto all = embedding({{"input", "London"}});
  auto some = embedding({{"input", "London"}, {"dimensions", 10}});
  ASSERT_EQ(some.size(), 10u);
  EXPECT_NEAR(length(some), 1, 1e-6);
  const double factor = length({all.begin(), all.begin() + 10});
  for (size_t i = 0; i < some.size(); ++i)
    EXPECT_NEAR(some[i] * factor, all[i], 1e-6);
}

TEST_F(EmbeddingsTest, TheModelsPoolingIsUsed) {
  loaded_.embedding = {Reading::mean, false};
  const auto mean = embedding({{"input", "The city of London"}});
  EXPECT_GT(std::abs(length(mean) - 1), 1e-3);
  EmbeddingOptions options;
  options.pooling = "mean";
  options.normalize = false;
  EXPECT_THAT(mean, ElementsAreArray(expected("The city of London", options)));
  loaded_.embedding.pooling = Reading::cls;
  EXPECT_NE(embedding({{"input", "The city of London"}}), mean);
}

TEST_F(EmbeddingsTest, TextsAreGeneratedMeanwhile) {
  const auto text = begin("POST", "/v1/completions",
                          R"({"prompt": "The city of London is", "max_tokens": 30,
                              "temperature": 0})");
  scheduler_->step();
  EXPECT_THAT(embedding({{"input", "Rivers freeze"}}), ElementsAreArray(expected("Rivers freeze")));
  while (!text->done && scheduler_->step()) {
  }
  EXPECT_EQ(text->json()["choices"][0]["text"], greedy_text("The city of London is", 30));
}

TEST_F(EmbeddingsTest, OtherFormsHaveTheSameValues) {
  const auto one = embedding({{"input", "London"}});
  const Json llama = post("/embedding", {{"content", "London"}})->json();
  ASSERT_EQ(llama.size(), 1u);
  EXPECT_EQ(llama[0]["index"], 0);
  EXPECT_EQ(values_of(llama[0]["embedding"][0]), one);
  const auto plain = values_of(
      post("/embedding", {{"input", "London"}, {"embd_normalize", -1}})->json()[0]["embedding"][0]);
  EXPECT_GT(std::abs(length(plain) - 1), 1e-3);
  const Json ollama = post("/api/embed", {{"input", {"a", "London"}}, {"truncate", true}})->json();
  EXPECT_EQ(ollama["model"], "tiny");
  ASSERT_EQ(ollama["embeddings"].size(), 2u);
  EXPECT_EQ(values_of(ollama["embeddings"][1]), one);
  EXPECT_EQ(ollama["prompt_eval_count"], ids("a").size() + ids("London").size());
  const Json old = post("/api/embeddings", {{"model", "tiny"}, {"prompt", "London"}})->json();
  EXPECT_EQ(values_of(old["embedding"]), plain);
  EXPECT_EQ(post("/api/embeddings", {{"input", "London"}})->response.status, 400);
  EXPECT_EQ(embedding({{"input", "London"}}),
            values_of(post("/embeddings", {{"input", "London"}})->json()["data"][0]["embedding"]));
}

TEST_F(EmbeddingsTest, WrongRequestsAreRefusedWithTheField) {
  const auto hidden = std::to_string(loaded_.model.config.hidden);
  const std::pair<Json, std::string> cases[] = {
      {Json::object(), "'input' must be a string, a list"},
      {{{"input", nullptr}}, "'input' must be a string, a list"},
      {{{"input", ""}}, "'input' is empty"},
      {{{"input", Json::array()}}, "'input' must be a string, a list"},
      {{{"input", {"a", ""}}}, "'input[1]' is empty"},
      {{{"input", Json::array({Json::array()})}}, "'input[0]' has no tokens"},
      {{{"input", 3}}, "'input' must be a string, a list"},
      {{{"input", {"a", true}}}, "'input' must be a string, a list"},
      {{{"input", {3, true}}}, "'input' must be made of token ids below"},
      {{{"input", {-1}}}, "'input' must be made of token ids below"},
      {{{"input", Json::array({Json::array({1, 99999999})})}}, "token ids below"},
      {{{"input", std::vector<std::string>(2049, "a")}}, "'input' must be at most 2048 inputs"},
      {{{"input", std::vector<int32_t>(257, 5)}},
       "maximum context length is 256 tokens, but "
       "'input' has 257"},
      {{{"input", {"a", std::string(100000, 'x')}}}, "'input[1]' has"},
      {{{"input", "a"}, {"encoding_format", "int8"}}, "'encoding_format' must be float or base64"},
      {{{"input", "a"}, {"dimensions", 0}}, "'dimensions' must be an integer from 1 to " + hidden},
      {{{"input", "a"}, {"dimensions", 1 << 20}}, "'dimensions' must be an integer from 1"},
      {{{"input", "a"}, {"model", 3}}, "'model' must be a string"},
  };
  for (const auto& [body, message] : cases) {
    const Json error = refusal("/v1/embeddings", body);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
  EXPECT_EQ(refusal("/v1/embeddings", {{"input", std::vector<int32_t>(257, 5)}})["code"],
            "context_length_exceeded");
  // These are 1200 texts of 251 tokens.
  const Json many(std::vector<std::vector<int32_t>>(1200, std::vector<int32_t>(251, 5)));
  EXPECT_THAT(refusal("/v1/embeddings", {{"input", many}})["message"].get<std::string>(),
              HasSubstr("'input' has more tokens than the 300000 of one request"));
  EXPECT_EQ(post("/api/embed", Json::object())->response.status, 400);
  EXPECT_EQ(post("/embedding", {{"content", "a"}, {"embd_normalize", 1}})->response.status, 400);
  EXPECT_EQ(ask("GET", "/v1/embeddings")->response.status, 405);
}

TEST_F(EmbeddingsTest, AModelWithoutItsStatesRefuses) {
  loaded_.folded = true;
  EXPECT_THAT(refusal("/v1/embeddings", {{"input", "a"}})["message"].get<std::string>(),
              HasSubstr("its residual stream is rotated"));
}

TEST_F(EmbeddingsTest, AFullQueueAndAServerThatEndsAnswerSo) {
  std::vector<std::shared_ptr<test::Recorded>> texts;
  for (int i = 0; i < 12; ++i)
    texts.push_back(begin("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 3})"));
  const auto refused = begin("POST", "/v1/embeddings", R"({"input": "a"})");
  EXPECT_EQ(refused->response.status, 429);
  while (scheduler_->step()) {
  }
  service_->drain();
  EXPECT_EQ(begin("POST", "/v1/embeddings", R"({"input": "a"})")->response.status, 503);
}

TEST_F(EmbeddingsTest, ATextTakesThePlaceOfTheOneBeforeInAFullQueue) {
  SchedulerOptions options;
  options.positions = 256;
  options.running = 1;
  options.waiting = 0;
  serve_with(options);
  const Json answer = post("/v1/embeddings", {{"input", {"a", "London", "ice"}}})->json();
  ASSERT_EQ(answer["data"].size(), 3u) << answer;
  EXPECT_THAT(values_of(answer["data"][1]["embedding"]), ElementsAreArray(expected("London")));
}

TEST_F(EmbeddingsTest, AClientThatLeavesWhileAllItsTextsEndGetsNoOthersRead) {
  std::shared_ptr<test::Recorded> reply;
  SchedulerOptions options;
  options.positions = 256;
  options.running = 4;
  bool left = false;
  options.clock = [&] {  // is read in the middle of a step
    if (reply && !std::exchange(left, true)) reply->gone();
    return 0.0;
  };
  serve_with(options);
  reply = begin("POST", "/v1/embeddings",
                Json({{"input", std::vector<std::string>(30, "London")}}).dump());
  while (scheduler_->step()) {
  }
  EXPECT_TRUE(left);
  EXPECT_EQ(reply->response.status, 503);
  EXPECT_EQ(scheduler_->counts().requests, 4u);
}

// Tells at once that the client has left, where the answer's texts have just begun.
class LeftReply : public test::Recorded {
 public:
  void on_gone(std::function<void()> what) override {
    if (++calls_ > 1) what();  // the first call is that of the handler
  }

 private:
  int calls_ = 0;
};

TEST_F(EmbeddingsTest, AClientThatHasLeftAlreadyEndsItsTexts) {
  const std::pair<const char*, Json> cases[] = {{"/v1/embeddings", {{"input", {"a", "b"}}}},
                                                {"/v1/completions", {{"prompt", "a"}}}};
  for (const auto& [path, body] : cases) {
    const auto reply = std::make_shared<LeftReply>();
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body.dump();
    const uint64_t before = scheduler_->counts().cancelled;
    service_->handle(request, reply);
    while (scheduler_->step()) {
    }
    EXPECT_GT(scheduler_->counts().cancelled, before) << path;
  }
}

TEST_F(EmbeddingsTest, AClientThatLeavesEndsItsTexts) {
  const auto reply = begin("POST", "/v1/embeddings",
                           Json({{"input", std::vector<std::string>(30, "London")}}).dump());
  ASSERT_FALSE(reply->done);
  reply->gone();
  while (scheduler_->step()) {
  }
  EXPECT_GE(scheduler_->counts().cancelled, 1u);
  EXPECT_LT(scheduler_->counts().requests, 10u);
}

// Serves a model whose tokenizer has "yes" in place of the token that ends texts.
class RerankTest : public EmbeddingsTest {
 protected:
  RerankTest() {
    std::string json = test::read_file(std::string(test::kServedModel) + "/tokenizer.json");
    for (size_t at; (at = json.find("<|end_of_text|>")) != std::string::npos;)
      json.replace(at, 15, "yes");
    loaded_.tokenizer = Tokenizer::from_json(json, "", "test");
    names_.reranker = true;
    service_ = make({});
    reranker_ = Reranker::of(loaded_);
  }

  // Computes the probability of "yes" behind the prompt from the model's logits, by its definition.
  double expected_score(const std::string& instruction, const std::string& query,
                        const std::string& document) {
    Session session(loaded_.model, {256});
    const auto prompt = reranker_->prompt(loaded_.tokenizer, instruction, query, document);
    double score = 0;
    session.forward(
        prompt,
        [&](int64_t, std::span<const float> logits) {
          const auto of = [&](const char* token) {
            return std::exp(
                double{logits[static_cast<size_t>(*loaded_.tokenizer.token_id(token))]});
          };
          score = of("yes") / (of("yes") + of("no"));
        },
        std::ssize(prompt) - 1);
    return score;
  }
  std::optional<Reranker> reranker_;
};

TEST_F(RerankTest, ThePromptIsThatOfTheModelCard) {
  const std::string text = loaded_.tokenizer.decode(
      reranker_->prompt(loaded_.tokenizer, "", "What is ice?", "Frozen water."), false);
  EXPECT_EQ(text,
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the "
            "Query and the Instruct provided. Note that the answer can only be \"yes\" or "
            "\"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve "
            "relevant passages that answer the query\n<Query>: What is ice?\n<Document>: Frozen "
            "water.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST_F(RerankTest, ResultsAreSortedByTheProbabilityOfYes) {
  const std::vector<std::string> documents = {"Ice is frozen water.", "London", "The mill", "ice"};
  const Json answer =
      post("/v1/rerank", {{"query", "What is ice?"}, {"documents", documents}})->json();
  EXPECT_EQ(answer["model"], "tiny");
  ASSERT_EQ(answer["results"].size(), documents.size());
  double last = 1;
  std::vector<bool> seen(documents.size(), false);
  for (const Json& result : answer["results"]) {
    const auto index = result["index"].get<size_t>();
    const auto score = result["relevance_score"].get<double>();
    EXPECT_FALSE(seen.at(index));
    seen[index] = true;
    EXPECT_LE(score, last);
    last = score;
    EXPECT_NEAR(score, expected_score("", "What is ice?", documents[index]), 1e-6);
    EXPECT_FALSE(result.contains("document"));
  }
  EXPECT_GT(answer["usage"]["total_tokens"], 4);
}

TEST_F(RerankTest, TextsAreRankedInTheFormOfTextEmbeddingsInference) {
  const Json texts = Json::array({"Ice is frozen water.", "London", "The mill"});
  const Json answer = post("/rerank", {{"query", "What is ice?"}, {"texts", texts}})->json();
  const Json other = post("/rerank", {{"query", "What is ice?"}, {"documents", texts}})->json();
  ASSERT_EQ(answer.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer[i]["index"], other["results"][i]["index"]);
    EXPECT_EQ(answer[i]["score"], other["results"][i]["relevance_score"]);
    EXPECT_FALSE(answer[i].contains("text"));
  }
  const Json best =
      post("/rerank",
           {{"query", "What is ice?"}, {"texts", texts}, {"top_n", 1}, {"return_text", true}})
          ->json();
  ASSERT_EQ(best.size(), 1);
  EXPECT_EQ(best[0]["text"], texts[best[0]["index"].get<size_t>()]);
}

TEST_F(RerankTest, TheBestOnesComeWithTheirTexts) {
  const Json body = {{"query", "ice"},
                     {"instruction", "Find rivers"},
                     {"documents", Json::array({"a mill", {{"text", "a river"}}, "a stone"})},
                     {"top_n", 2},
                     {"return_documents", true}};
  for (const char* path : {"/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking"}) {
    const Json results = post(path, body)->json()["results"];
    ASSERT_EQ(results.size(), 2u) << path;
    for (const Json& result : results) {
      const Json& document = body["documents"][result["index"].get<size_t>()];
      const Json text = document.is_object() ? document["text"] : document;
      EXPECT_EQ(result["document"]["text"], text);
      EXPECT_NEAR(result["relevance_score"].get<double>(),
                  expected_score("Find rivers", "ice", text.get<std::string>()), 1e-6);
    }
  }
}

TEST_F(RerankTest, WrongRequestsAreRefusedWithTheField) {
  const std::pair<Json, std::string> cases[] = {
      {{{"documents", {"a"}}}, "'query' must be a text that is not empty, found nothing"},
      {{{"query", ""}, {"documents", {"a"}}}, "'query' must be a text that is not empty"},
      {{{"query", 3}, {"documents", {"a"}}}, "'query' must be a string"},
      {{{"query", "a"}}, "'documents' must be a list"},
      {{{"query", "a"}, {"documents", Json::array()}}, "'documents' must be a list"},
      {{{"query", "a"}, {"documents", {3}}}, "'documents' must be a list"},
      {{{"query", "a"}, {"documents", Json::array({Json::object()})}},
       "'documents' must be a list"},
      {{{"query", "a"}, {"documents", {"b", ""}}}, "'documents[1]' is empty"},
      {{{"query", "a"}, {"documents", std::vector<std::string>(2049, "b")}},
       "'documents' must be at most 2048 documents"},
      {{{"query", "a"}, {"documents", {"b"}}, {"top_n", 0}}, "'top_n' must be an integer from 1"},
      {{{"query", "a"}, {"documents", {"b"}}, {"return_documents", 1}},
       "'return_documents' must be a boolean"},
  };
  for (const auto& [body, message] : cases)
    EXPECT_THAT(refusal("/v1/rerank", body)["message"].get<std::string>(), HasSubstr(message));
  std::string long_one;
  for (int i = 0; i < 300; ++i)
    long_one += " river";
  const Json error = refusal("/v1/rerank", {{"query", "a"}, {"documents", {"b", long_one}}});
  EXPECT_THAT(error["message"].get<std::string>(),
              HasSubstr("maximum context length is 256 tokens, but 'documents[1]' has "));
  EXPECT_EQ(error["param"], "documents[1]");
  // The query counts for every document.
  std::string query;
  for (int i = 0; i < 80; ++i)
    query += " river";
  EXPECT_THAT(refusal("/v1/rerank", {{"query", query},
                                     {"documents", std::vector<std::string>(2048, "b")}})["message"]
                  .get<std::string>(),
              HasSubstr("'documents' has more tokens than the 300000 of one request"));
}

TEST_F(RerankTest, LogitsThatAreNotFiniteGiveNoScore) {
  std::vector<float> logits(static_cast<size_t>(loaded_.model.config.vocab), 0);
  EXPECT_FLOAT_EQ(reranker_->score(logits), 0.5f);
  logits[static_cast<size_t>(*loaded_.tokenizer.token_id("yes"))] = NAN;
  EXPECT_THROW(reranker_->score(logits), Error);
}

TEST_F(EmbeddingsTest, OtherModelsRefuseToRank) {
  const Json body = {{"query", "a"}, {"documents", {"b"}}};
  EXPECT_THAT(refusal("/v1/rerank", body)["message"].get<std::string>(),
              HasSubstr("tiny does not rank documents"));
}

}  // namespace
}  // namespace walsh
