// Tests fields that clients of other servers send: their effect, their trace in answers, and the
// count of those without effect.
#include <gmock/gmock.h>

#include "serve/service_fixture.h"

namespace walsh {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServiceFields : public test::ServiceTest {
 protected:
  std::string metrics() { return ask("GET", "/metrics")->response.body; }
  static Json greedy(int64_t tokens) {
    return {{"prompt", "The city of London is the capital of England and it stands on the"},
            {"max_tokens", tokens},
            {"temperature", 0},
            {"ignore_eos", true}};
  }
};

TEST_F(ServiceFields, ThoseThatMeanNothingAreIgnoredAndCounted) {
  Json body = greedy(1);
  body.update({{"user", "me"}, {"cache_prompt", true}, {"timings_per_token", false}});
  EXPECT_EQ(post("/v1/completions", body)->response.status, 200);
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 0\n"));
  body.update({{"mirostat", 2}, {"t_max_predict_ms", 5}});
  EXPECT_EQ(post("/v1/completions", body)->response.status, 200);
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 2\n"));
  EXPECT_EQ(post("/tokenize", {{"content", "a"}, {"parse_special", true}})->response.status, 200);
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 3\n"));
  EXPECT_EQ(post("/detokenize", {{"tokens", {1}}, {"x", 1}, {"y", 1}})->response.status, 200);
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 5\n"));
}

// The server's flags stand where a request says nothing, and the model's own where they do not.
TEST_F(ServiceFields, TheServerSaysWhatRequestsLeaveOpen) {
  const auto text = [&](Json body) {
    body.update({{"prompt", "The city of London"}, {"max_tokens", 12}});
    return post("/v1/completions", body)->json()["choices"][0]["text"].get<std::string>();
  };
  const std::string greedy = text({{"temperature", 0}});
  const std::string drawn = text({{"temperature", 1.5}, {"seed", 7}, {"top_k", 0}});
  ASSERT_NE(greedy, drawn);
  names_.sampling.temperature = 1.5f;
  names_.sampling.top_k = 0;
  names_.sampling.seed = 7;
  service_ = make({});
  EXPECT_EQ(text({}), drawn);
  EXPECT_EQ(text({{"temperature", nullptr}}), drawn);
  EXPECT_EQ(text({{"temperature", 0}}), greedy);
  EXPECT_EQ(text({{"top_k", 1}}), greedy);
  const Json params = ask("GET", "/props")->json()["default_generation_settings"]["params"];
  EXPECT_EQ(params["temperature"], 1.5);
  EXPECT_EQ(params["top_k"], 0);
  EXPECT_EQ(params["min_p"], loaded_.generation.sampler({}).min_p);
}

// llama.cpp's clients send it so: a number of tokens under its name, and -1 for "until the end".
TEST_F(ServiceFields, TheNumberOfTokensHasTwoNames) {
  const auto tokens = [&](const char* path, const Json& more) {
    Json body = {{"prompt", "The city of"}, {"messages", Json::array()}, {"temperature", 0}};
    body.update(more);
    return post(path, body)->json()["usage"]["completion_tokens"].get<int64_t>();
  };
  service_ = make([](const OrderedJson&) { return std::string("The city of"); });
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    EXPECT_EQ(tokens(path, {{"n_predict", 3}, {"ignore_eos", true}}), 3);
    EXPECT_EQ(tokens(path, {{"max_tokens", 2}, {"n_predict", 3}, {"ignore_eos", true}}), 2);
    // The text goes to the end of the context of 256.
    EXPECT_GT(tokens(path, {{"max_tokens", -1}, {"ignore_eos", true}}), 200);
  }
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 6\n"));  // of the other endpoint
}

TEST_F(ServiceFields, EveryInterfaceKnowsItsOwn) {
  service_ = make([](const OrderedJson&) { return std::string("The city of"); });
  const Json said = Json::array({{{"role", "user"}, {"content", "The city of"}}});
  const std::pair<std::string, Json> requests[] = {
      {"/v1/chat/completions",
       {{"messages", said},
        {"max_completion_tokens", 1},
        {"reasoning_effort", "low"},
        {"parallel_tool_calls", true},
        {"logit_bias", {{"5", 1}}}}},
      {"/v1/responses",
       {{"input", "Hello"}, {"max_output_tokens", 1}, {"model", "x"}, {"seed", 1}}},
      {"/v1/messages", {{"messages", said}, {"max_tokens", 1}, {"model", "x"}, {"top_k", 1}}},
      {"/apply-template", {{"messages", said}, {"tools", Json::array()}}},
  };
  for (const auto& [path, body] : requests)
    EXPECT_EQ(post(path, body)->response.status, 200) << path;
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 0\n"));
  for (const auto& [path, body] : requests) {
    Json more = body;
    more["frobnicate"] = true;
    EXPECT_EQ(post(path, more)->response.status, 200) << path;
  }
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 4\n"));
}

TEST_F(ServiceFields, ATextMayBeReadWithoutWhatIsKnown) {
  const auto cached = [&](const Json& body) {
    return post("/v1/completions", body)->json()["usage"]["prompt_tokens_details"]["cached_tokens"];
  };
  Json body = greedy(2);
  body["prompt"] = std::string(50, 'x') + " and what follows it is known from then on";
  EXPECT_EQ(cached(body), 0);
  EXPECT_GT(cached(body), 0);
  body["cache_prompt"] = false;
  EXPECT_EQ(cached(body), 0);
  body["cache_prompt"] = 1;
  EXPECT_EQ(post("/v1/completions", body)->response.status, 400);
  body["cache_prompt"] = true;
  for (const auto& [most, status] : {std::pair(0, 200), std::pair(-1, 400)}) {
    body["speculative.n_max"] = most;
    EXPECT_EQ(post("/v1/completions", body)->response.status, status);
  }
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:ignored_fields_total 0\n"));
}

TEST_F(ServiceFields, TheLogTellsOfTokensWithoutTheBosThatTextsHave) {
  const int32_t bos = loaded_.tokenizer.added_bos().value();
  const auto logged = [&](const Json& prompt) {
    Json body = greedy(1);
    body["prompt"] = prompt;
    testing::internal::CaptureStderr();
    const auto reply = post("/v1/completions", body);
    EXPECT_EQ(reply->response.status, 200) << reply->response.body;
    service_ = make({});  // this ends the log of the one before
    return testing::internal::GetCapturedStderr();
  };
  names_.log = LogFormat::text;
  service_ = make({});
  EXPECT_THAT(logged({5, 6}), HasSubstr("lacks the model's BOS"));
  EXPECT_THAT(logged(Json::array({{bos, 6}, {5}})), HasSubstr("lacks the model's BOS"));
  EXPECT_THAT(logged({bos, 6}), Not(HasSubstr("BOS")));
  EXPECT_THAT(logged("The river"), Not(HasSubstr("BOS")));
}

TEST_F(ServiceFields, AStreamEndsWithItsTimes) {
  Json body = greedy(5);
  body["stream"] = true;
  auto chunks = post("/v1/completions", body)->chunks();
  for (size_t i = 0; i + 1 < chunks.size(); ++i)
    EXPECT_FALSE(chunks[i].contains("timings")) << chunks[i];
  const Json timings = chunks.back()["timings"];
  EXPECT_EQ(timings["predicted_n"], 5);
  EXPECT_GT(timings["prompt_n"], 0);
  for (const char* key : {"prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second",
                          "queue_ms", "cache_n"})
    EXPECT_TRUE(timings[key].is_number()) << key;

  body["timings_per_token"] = true;
  chunks = post("/v1/completions", body)->chunks();
  ASSERT_GE(chunks.size(), 6u) << "one for each token and the end";
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_EQ(chunks[static_cast<size_t>(i)]["timings"]["predicted_n"], i + 1);
}

TEST_F(ServiceFields, TheTimesOfAllTextsAreCounted) {
  EXPECT_THAT(metrics(), HasSubstr("\nwalsh:prompt_seconds_total 0\n"));
  post("/v1/completions", greedy(3));
  EXPECT_THAT(metrics(), Not(HasSubstr("\nwalsh:prompt_seconds_total 0\n")));
  EXPECT_THAT(metrics(), Not(HasSubstr("\nwalsh:tokens_predicted_seconds_total 0\n")));
}

}  // namespace
}  // namespace walsh
