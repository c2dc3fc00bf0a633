// What a request wants the text of its answer to match: OpenAI's response_format, llama.cpp's
// grammar and json_schema, vLLM's guided_* and structured_outputs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/graph.h"
#include "io/json.h"

namespace walsh {

struct AnswerText {
  enum class Kind : uint8_t { gbnf, regex, schema, object, choice };
  Kind kind = Kind::object;
  std::string source;  // a grammar in GBNF or a regular expression
  OrderedJson schema;
  std::vector<std::string> choice;  // one of these texts
  std::string field;                // of the request, for messages

  // Adds its rule. Throws as add_gbnf and add_json_schema.
  grammar::RuleId add_to(grammar::GraphBuilder& builder) const;
  // Tells it from all others.
  std::string key() const;
};

// Nothing if any text will do. Throws ApiError for a wrong field and for several of them.
std::optional<AnswerText> answer_text(const OrderedJson& request);

}  // namespace walsh
