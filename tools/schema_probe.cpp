// Shows what the compiler of JSON schemas makes of them, for tools/check_schemas.py. It reads lines
// of JSON
//
//   {"schema": ..., "instances": [texts], "samples": how many texts to make, "seed": ...}
//
// and answers each with a line {"error": why it is refused} or {"accepted": [of each instance],
// "texts": [whole texts of random tokens]}.
#include <iostream>
#include <memory>
#include <string>

#include "grammar/grammar_test_util.h"
#include "grammar/json_schema.h"

namespace {

using walsh::Json;

constexpr int kMostTokens = 3000;

Json answer(const walsh::OrderedJson& request) {
  using namespace walsh;
  grammar::GraphBuilder builder("schema");
  const auto root = add_json_schema(builder, request["schema"]);
  const auto vocabulary = test::small_vocabulary();
  const auto compiled =
      std::make_shared<const grammar::TokenGrammar>(builder.finish(root), vocabulary, "schema");
  Json result = {{"accepted", Json::array()}, {"texts", Json::array()}};
  for (const auto& text : request["instances"]) {
    grammar::TokenMatcher matcher(compiled);
    bool accepted = true;
    for (const char c : text.get<std::string>())
      accepted = accepted && matcher.accept(static_cast<uint8_t>(c));
    result["accepted"].push_back(accepted && matcher.complete());
  }
  Random random(request["seed"].get<uint64_t>());
  for (int i = 0; i < request["samples"].get<int>(); ++i) {
    const auto sample = test::random_text(compiled, random, kMostTokens);
    if (sample.complete) result["texts"].push_back(sample.text);
  }
  return result;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = answer(walsh::parse_ordered_json(line, "line"));
    } catch (const walsh::Error& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump(-1, ' ', true) << std::endl;
  }
}
