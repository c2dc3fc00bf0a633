// Every sampling option is known to every endpoint, to the document at /openapi.json, to /props and
// to docs/sampling.md.
#include "serve/sampling_fields.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "generate/sampling_options.h"
#include "serve/known_fields.h"
#include "serve/service_fixture.h"

namespace walsh {
namespace {

using testing::HasSubstr;

// The endpoints that generate texts, with what they need.
const std::vector<std::pair<std::string, Json>>& endpoints() {
  const Json said = Json::array({{{"role", "user"}, {"content", "The city of"}}});
  static const std::vector<std::pair<std::string, Json>> all = {
      {"/v1/completions", {{"prompt", "The city of"}, {"max_tokens", 12}}},
      {"/v1/chat/completions", {{"messages", said}, {"max_tokens", 12}}},
      {"/v1/responses", {{"input", "The city of"}, {"max_output_tokens", 12}}},
      {"/v1/messages", {{"messages", said}, {"max_tokens", 12}}}};
  return all;
}

std::vector<std::string> names_of(const SamplingOption& option) {
  std::vector<std::string> names(option.other_names.begin(), option.other_names.end());
  names.emplace_back(option.name);
  return names;
}

class SamplingFields : public test::ServiceTest {
 protected:
  SamplingFields() {
    service_ = make([](const OrderedJson&) { return std::string("The city of"); });
  }
  // The answer of an endpoint.
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
    for (const std::string& name : names_of(option)) {
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
  const std::string completion = text(endpoints()[0].first, endpoints()[0].second, base);
  for (const Json& one :
       {Json{{"temperature", 0}}, Json{{"seed", 8}}, Json{{"top_k", 1}}, Json{{"top_p", 0.01}},
        Json{{"min_p", 1}}, Json{{"repetition_penalty", 0.1}}, Json{{"typical_p", 0.01}},
        Json{{"top_n_sigma", 0.01}}, Json{{"xtc_probability", 1}, {"xtc_threshold", 0.0001}},
        Json{{"presence_penalty", -20}}, Json{{"frequency_penalty", -20}},
        Json{{"dry_multiplier", 50}, {"dry_allowed_length", 1}, {"presence_penalty", -9}},
        Json{{"samplers", {"temperature", "top_k"}}, {"top_k", 1}},
        Json{{"logit_bias", {{"100", 100}}}}}) {
    Json more = base;
    more.update(one);
    const std::string changed = text(chat_path, chat_body, more);
    EXPECT_NE(changed, plain) << one;
    for (const auto& [path, needed] : endpoints()) {
      if (path == "/v1/completions") {  // whose prompt begins with BOS
        EXPECT_NE(text(path, needed, more), completion) << one;
      } else {
        EXPECT_EQ(text(path, needed, more), changed) << path << one;
      }
    }
  }
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
    for (const std::string& name : names_of(option))
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

TEST_F(SamplingFields, TheDocsHaveTheirTable) {
  std::ifstream in(WALSH_SOURCE_DIR "/docs/sampling.md");
  const std::string docs(std::istreambuf_iterator<char>(in), {});
  std::string table;
  for (const SamplingOption& option : sampling_options()) {
    std::string fields, flags;
    for (const std::string& name : names_of(option))
      fields = "`" + name + "`" + (fields.empty() ? "" : ", ") + fields;
    const std::string all = option.flags;
    for (size_t at = 0; at < all.size();) {
      const size_t end = std::min(all.find(',', at), all.size());
      flags += (flags.empty() ? "`" : ", `") + all.substr(at, end - at) + "`";
      at = end + 1;
    }
    table += "| " + fields + " | " + flags + " | " + range_text(option) + " | " +
             default_text(option) + (option.key == nullptr ? "" : " (model)") + " | " +
             option.help + " |\n";
  }
  EXPECT_THAT(docs, HasSubstr(table)) << "docs/sampling.md has another table than\n" << table;
}

}  // namespace
}  // namespace walsh
