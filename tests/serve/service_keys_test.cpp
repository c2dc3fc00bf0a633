// One key's requests reveal nothing about another's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/service_fixture.h"

namespace walsh {
namespace {

using test::ServiceTest;
using Headers = std::map<std::string, std::string>;

class ServiceKeysTest : public ServiceTest {
 protected:
  ServiceKeysTest() {
    names_.api_keys = {"first", "second"};
    service_ = make(make_chat_prompt(*loaded_.chat));
  }

  static Headers key(const std::string& name) { return {{"authorization", "Bearer " + name}}; }
  int64_t cached(const Headers& headers, const std::string& prompt, const Json& more = {}) {
    Json body = {{"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}};
    body.update(more.is_null() ? Json::object() : more);
    const auto reply = ask("POST", "/v1/completions", body.dump(), headers);
    EXPECT_EQ(reply->response.status, 200) << reply->response.body;
    return reply->json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  }
};

// The figures of a guess would tell how far it is right, word by word.
TEST_F(ServiceKeysTest, APromptCannotBeGuessedThroughWhatIsKept) {
  const std::string prompt = "There is a river in the city of London and a bridge over it.";
  EXPECT_EQ(cached(key("first"), prompt), 0);
  EXPECT_EQ(cached(key("second"), prompt), 0);
  EXPECT_GT(cached(key("first"), prompt), 8);
}

// The time that a schema takes would tell whether another key has used it.
TEST_F(ServiceKeysTest, GrammarsAreCompiledForEachOwner) {
  const std::pair<const char*, Json> bodies[] = {
      {"completion", {{"prompt", "a"}, {"guided_regex", "[0-9]{3}"}}},
      {"chat", {{"response_format", {{"type", "json_object"}}}}}};
  for (const auto& [what, body] : bodies) {
    const auto grammar = [&, &body = body](const std::string& owner) {
      const PromptLimits limits{256, 65536};
      const OrderedJson ordered = parse_ordered_json(body.dump(), "body");
      const auto request = body.contains("prompt")
                               ? parse_completion(ordered, loaded_, limits, {}, owner)
                               : parse_chat(ordered, loaded_, limits, {}, owner, "a");
      EXPECT_EQ(request.text.owner, owner);
      return request.text.grammar;
    };
    const auto first = grammar("1 ");
    ASSERT_NE(first, nullptr) << what;
    EXPECT_EQ(grammar("1 "), first) << what;
    EXPECT_NE(grammar("2 "), first) << what;
    EXPECT_NE(grammar("1 salt"), first) << what;
  }
}

TEST_F(ServiceKeysTest, SaltsSeparateTheRequestsOfOneKey) {
  const std::string prompt = "There is a river in the city of London and a bridge over it.";
  const Json salt = {{"cache_salt", "one"}}, other = {{"cache_salt", "two"}};
  EXPECT_EQ(cached(key("first"), prompt, salt), 0);
  EXPECT_GT(cached(key("first"), prompt, salt), 8);
  EXPECT_EQ(cached(key("first"), prompt, other), 0);
  EXPECT_EQ(cached(key("first"), prompt), 0);
  EXPECT_EQ(cached(key("second"), prompt, salt), 0) << "a salt is no key";
}

TEST_F(ServiceKeysTest, WithoutKeysAllShare) {
  names_.api_keys.clear();
  service_ = make({});
  const std::string prompt = "There is a river in the city of London and a bridge over it.";
  EXPECT_EQ(cached({}, prompt), 0);
  EXPECT_GT(cached(key("any"), prompt), 8);
  EXPECT_EQ(cached({}, prompt, {{"cache_salt", "one"}}), 0);
}

TEST_F(ServiceKeysTest, EveryInterfaceTakesASalt) {
  const std::pair<const char*, Json> requests[] = {
      {"/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}},
      {"/v1/chat/completions",
       {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}}},
      {"/v1/responses", {{"input", "a"}, {"max_output_tokens", 1}}},
      {"/v1/messages", {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}}}};
  for (const auto& [path, body] : requests) {
    Json with = body;
    with["cache_salt"] = "x";
    EXPECT_EQ(ask("POST", path, with.dump(), key("first"))->response.status, 200) << path;
    for (const Json& wrong : {Json(5), Json("")}) {
      with["cache_salt"] = wrong;
      const auto reply = ask("POST", path, with.dump(), key("first"));
      EXPECT_EQ(reply->response.status, 400) << path;
      EXPECT_THAT(reply->response.body, testing::HasSubstr("cache_salt")) << path;
    }
  }
  EXPECT_THAT(ask("GET", "/metrics", "", key("first"))->response.body,
              testing::HasSubstr("walsh:ignored_fields_total 0\n"));
}

// The header alone decides this, before the body; the open page does not make its clients known.
TEST_F(ServiceKeysTest, RequestsAreAdmittedByTheirHeader) {
  const auto admit = [&](const std::string& path, Headers headers, const char* method = "POST") {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.headers = std::move(headers);
    request.headers.emplace("host", "localhost");
    return service_->admit(request);
  };
  const auto status = [](const HttpAdmission& a) { return a.refusal ? a.refusal->status : 0; };
  EXPECT_EQ(status(admit("/v1/completions", {})), 401);
  EXPECT_EQ(status(admit("/v1/completions", key("wrong"))), 401);
  EXPECT_EQ(status(admit("/nothing", key("first"))), 404);
  EXPECT_EQ(status(admit("/v1/completions", key("second"))), 0);
  EXPECT_TRUE(admit("/v1/completions", key("second")).known);
  EXPECT_EQ(status(admit("/health", {}, "GET")), 0);
  EXPECT_FALSE(admit("/health", {}, "GET").known);
  EXPECT_EQ(status(admit("/health", {{"content-length", "0"}}, "GET")), 0);
  // Bodies that are held for strangers would leave no room for others.
  for (const char* path : {"/", "/health", "/openapi.json"}) {
    EXPECT_EQ(status(admit(path, {{"content-length", "8000000"}}, "GET")), 401) << path;
    EXPECT_EQ(status(admit(path, {{"transfer-encoding", "chunked"}}, "GET")), 401) << path;
    Headers keyed = key("first");
    keyed["content-length"] = "10";
    EXPECT_EQ(status(admit(path, keyed, "GET")), 0) << path;
  }
  names_.api_keys.clear();
  service_ = make({});
  EXPECT_TRUE(admit("/v1/completions", {}).known);
}

TEST_F(ServiceKeysTest, LongBodiesDoNotHoldUpShortOnes) {
  HttpRequest request;
  request.path = "/v1/completions";
  request.body = std::string(1000, 'a');
  EXPECT_EQ(turn_of(request), HttpTurn::handlers);
  request.body = std::string(1 << 20, 'a');
  EXPECT_EQ(turn_of(request), HttpTurn::long_bodies);
  // So do images, however short their files are.
  for (const char* body : {R"([{"type": "image_url", "image_url": "data:"}])", R"({"images": []})",
                           R"([{"type": "input_image"}])", R"({"im\u0061ges": []})"}) {
    request.body = body;
    EXPECT_EQ(turn_of(request), HttpTurn::long_bodies) << body;
  }
  request.body = R"({"prompt": "an image \u00e9 \u001b"})";
  EXPECT_EQ(turn_of(request), HttpTurn::handlers);
}

TEST_F(ServiceKeysTest, BodiesHaveABoundedNumberOfValues) {
  std::string zeros = "0";
  for (int i = 0; i < (1 << 20); ++i)
    zeros += ",0";
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize"}) {
    const auto reply = ask("POST", path, R"({"x": [)" + zeros + "]}", key("first"));
    EXPECT_EQ(reply->response.status, 400) << path;
    EXPECT_THAT(reply->response.body, testing::HasSubstr("more than 1048576 values")) << path;
  }
}

TEST_F(ServiceKeysTest, PathsAreKnownWithoutTheirVersion) {
  for (const char* path : {"/models", "/models/", "/v1/models/", "/version", "/health/"})
    EXPECT_EQ(ask("GET", path, "", key("first"))->response.status, 200) << path;
  const Json body = {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}};
  for (const char* path : {"/chat/completions", "/v1/chat/completions/"})
    EXPECT_EQ(ask("POST", path, body.dump(), key("first"))->response.status, 200) << path;
}

TEST_F(ServiceKeysTest, RefusalsSayWhatHelps) {
  const auto host = ask("GET", "/health", "", {{"host", "model.internal:8080"}});
  EXPECT_EQ(host->response.status, 403);
  EXPECT_THAT(host->response.body, testing::HasSubstr("--allowed-hosts model.internal"));
  Json body = {{"prompt", std::vector<int>(300, 5)}};
  const auto reply = ask("POST", "/v1/completions", body.dump(), key("first"));
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_EQ(reply->json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(reply->json()["error"]["type"], "invalid_request_error");
}

}  // namespace
}  // namespace walsh
