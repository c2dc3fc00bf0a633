// Every sampling option is known to every endpoint, to the document at /openapi.json, to /props and
// to the page.
#include "serve/sampling_fields.h"

#include <gmock/gmock.h>

#include <set>

#include "generate/sampling_options.h"
#include "serve/known_fields.h"
#include "serve/service_fixture.h"

namespace walsh {
namespace {

using testing::HasSubstr;

// Returns the endpoints that generate texts, with what they need.
const std::vector<std::pair<std::string, Json>>& endpoints() {
  const Json said = Json::array({{{"role", "user"}, {"content", "The city of"}}});
  static const std::vector<std::pair<std::string, Json>> all = {
      {"/v1/completions", {{"prompt", "The city of"}, {"max_tokens", 12}}},
      {"/v1/chat/completions", {{"messages", said}, {"max_tokens", 12}}},
      {"/v1/responses", {{"input", "The city of"}, {"max_output_tokens", 12}}},
      {"/v1/messages", {{"messages", said}, {"max_tokens", 12}}}};
  return all;
}

class SamplingFields : public test::ServiceTest {
 protected:
  SamplingFields() {
    service_ = make([](const OrderedJson&) { return std::string("The city of"); });
  }
  // Returns the text of an endpoint's answer.
  static std::string text_of(const Json& answer) {
    if (answer.contains("output")) return answer["output"][0]["content"][0]["text"];
    if (answer.contains("content")) return answer["content"][0]["text"];
    const Json& choice = answer["choices"][0];
    return choice.contains("text") ? choice["text"] : choice["message"]["content"];
  }
  std::string text(const std::string& path, Json body, const Json& more) {
    body.update(more);
    const auto reply = post(path, body);
    EXPECT_EQ(reply->response.status, 200) << path << reply->response.body;
    return text_of(reply->json());
  }
};

TEST_F(SamplingFields, EveryEndpointRefusesWrongTypesOfAllOfThemByName) {
  for (const SamplingOption& option : sampling_options()) {
    for (const std::string name : option.names()) {
      const Json schema = sampling_properties()[name];
      const std::string type = schema.value("type", "");
      const bool number = type == "number" || type == "integer";
      for (const auto& [path, needed] : endpoints()) {
        EXPECT_TRUE(is_known_field(path, name)) << path << name;
        Json body = needed;
        body[name] = number ? Json("x") : Json(5);
        const auto reply = post(path, body);
        EXPECT_EQ(reply->response.status, 400) << path << body;
        EXPECT_THAT(reply->response.body, HasSubstr("'" + name + "'"));
        if (type != "number") continue;
        body[name] = option.most * 2;
        EXPECT_EQ(post(path, body)->response.status, 400) << path << body;
      }
    }
  }
}

// Each of them changes the text of every endpoint as it does that of a chat.
TEST_F(SamplingFields, EveryEndpointFollowsAllOfThem) {
  const Json base = {{"temperature", 1.2}, {"seed", 7}, {"top_k", 0}, {"min_p", 0}, {"top_p", 1}};
  const auto& [chat_path, chat_body] = endpoints()[1];
  const std::string plain = text(chat_path, chat_body, base);
  std::set<const SamplingOption*> tried;
  const std::string completion = text(endpoints()[0].first, endpoints()[0].second, base);
  for (const Json& one :
       {Json{{"temperature", 0}}, Json{{"seed", 8}}, Json{{"top_k", 1}}, Json{{"top_p", 0.01}},
        Json{{"dynatemp_range", 2}, {"dynatemp_exponent", 0.1}}, Json{{"min_p", 1}},
        Json{{"repetition_penalty", 0.1}}, Json{{"typical_p", 0.01}}, Json{{"top_n_sigma", 0.01}},
        Json{{"xtc_probability", 1}, {"xtc_threshold", 0.0001}}, Json{{"presence_penalty", -20}},
        Json{{"frequency_penalty", -20}}, Json{{"repeat_penalty", 0.1}, {"repeat_last_n", 1}},
        Json{{"dry_multiplier", 50}, {"dry_allowed_length", 1}, {"presence_penalty", -9}},
        Json{{"dry_multiplier", 9},
             {"dry_allowed_length", 1},
             {"dry_base", 3},
             {"dry_penalty_last_n", 64},
             {"dry_sequence_breakers", {"none"}},
             {"frequency_penalty", -9}},
        Json{{"logit_bias", {{"0", 50}, {"1", 50}, {"2", 50}}}, {"ignore_eos", true}},
        Json{{"samplers", {"temperature", "top_k"}}, {"top_k", 1}},
        Json{{"logit_bias", {{"100", 100}}}}}) {
    Json more = base;
    more.update(one);
    for (const auto& [name, value] : one.items())
      tried.insert(find_sampling_option(name));
    const std::string changed = text(chat_path, chat_body, more);
    EXPECT_NE(changed, plain) << one;
    for (const auto& [path, needed] : endpoints()) {
      if (path == "/v1/completions") {  // its prompt begins with BOS
        EXPECT_NE(text(path, needed, more), completion) << one;
      } else {
        EXPECT_EQ(text(path, needed, more), changed) << path << one;
      }
    }
  }
  for (const SamplingOption& option : sampling_options())
    EXPECT_TRUE(tried.contains(&option)) << option.name;
}

TEST_F(SamplingFields, TheServersOwnStandWhereARequestSaysNothing) {
  names_.sampling.logit_bias = {{100, 100.0f}};
  names_.sampling.temperature = 0.0f;
  service_ = make({});
  const auto& [path, body] = endpoints()[0];
  const std::string biased = text(path, body, Json::object());
  EXPECT_NE(biased, text(path, body, {{"logit_bias", Json::object()}}));
  EXPECT_EQ(biased, text(path, body, {{"logit_bias", {{"100", 100}}}}));
}

TEST_F(SamplingFields, TheDocumentAndPropsHaveAllOfThem) {
  const Json document = ask("GET", "/openapi.json")->json();
  const Json& properties = document["components"]["schemas"]["Sampling"]["properties"];
  const Json params = ask("GET", "/props")->json()["default_generation_settings"]["params"];
  for (const SamplingOption& option : sampling_options()) {
    for (const std::string name : option.names())
      EXPECT_TRUE(properties.contains(name)) << name;
    const std::string type = properties[option.name].value("type", "");
    const bool drawn = std::string(option.name) == "seed";
    EXPECT_EQ(params.contains(option.name),
              !drawn && (type == "number" || type == "integer" || type == "array"))
        << option.name;
  }
  for (const auto& [path, ignored] : endpoints()) {
    const Json& body = document["paths"][path]["post"]["requestBody"]["content"];
    EXPECT_EQ(body["application/json"]["schema"]["allOf"][0]["$ref"],
              "#/components/schemas/Sampling")
        << path;
  }
}

// The page asks for every number among them.
TEST_F(SamplingFields, ThePageHasAllNumbers) {
  const std::string page = ask("GET", "/")->response.body;
  for (const SamplingOption& option : sampling_options()) {
    const Json schema = sampling_properties()[option.name];
    const std::string type = schema.value("type", "");
    const std::string input =
        "[\"" + std::string(option.name) + "\"," + schema.value("minimum", Json()).dump() + ",";
    EXPECT_EQ(page.find(input) != page.npos, type == "number" || type == "integer") << input;
  }
  EXPECT_EQ(page.find("@SAMPLING@"), page.npos);
}

TEST_F(SamplingFields, BiasesMayBeAListOfPairs) {
  const auto& [path, body] = endpoints()[0];
  const Json greedy = {{"temperature", 0}};
  const auto biased = [&, &path = path, &body = body](const Json& biases) {
    Json more = greedy;
    more["logit_bias"] = biases;
    return text(path, body, more);
  };
  const std::string plain = text(path, body, greedy);
  const Json pair = Json::array({Json::array({100, 100})});
  EXPECT_EQ(biased(pair), biased({{"100", 100}}));
  EXPECT_NE(biased(pair), plain);
  EXPECT_EQ(biased(Json::array({Json::array({100, false})})), plain) << "which it does not have";
  EXPECT_NE(biased(Json::array({Json::array({100, 100}), Json::array({100, false})})),
            biased(pair));
  for (const Json& wrong :
       {Json(5), Json::array({100}), Json::array({100, 1, 2}), Json::array({-1, 1}),
        Json::array({1000000000, 1}), Json::array({100, 101}), Json::array({100, true}),
        Json::array({Json(), 1})}) {
    Json bad = body;
    bad["logit_bias"] = Json::array({pair[0], wrong});
    const auto reply = post(path, bad);
    EXPECT_EQ(reply->response.status, 400) << wrong;
    EXPECT_THAT(reply->response.body, HasSubstr("logit_bias[1]"));
  }
}

TEST_F(SamplingFields, ANegativeSeedIsDrawn) {
  names_.sampling.seed = 7;
  service_ = make({});
  const auto& [path, body] = endpoints()[0];
  const Json hot = {{"temperature", 5}, {"top_k", 0}, {"top_p", 1}, {"min_p", 0}};
  EXPECT_EQ(text(path, body, hot), text(path, body, hot));
  Json drawn = hot;
  drawn["seed"] = -1;
  EXPECT_NE(text(path, body, drawn), text(path, body, drawn));
}

}  // namespace
}  // namespace walsh
