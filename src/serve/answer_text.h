// Reads the form that a request requires of the answer's text: OpenAI's response_format,
// llama.cpp's grammar and json_schema, vLLM's guided_* and structured_outputs.
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
  std::string source;  // GBNF grammar or regular expression
  OrderedJson schema;
  std::vector<std::string> choice;  // one of these texts
  std::string field;                // the request's field, for messages

  // Adds its rule. Throws as add_gbnf and add_json_schema.
  grammar::RuleId add_to(grammar::GraphBuilder& builder) const;
  // Identifies the form among all others.
  std::string key() const;
};

// Returns nothing if any text is allowed. Throws ApiError for a malformed field and for more than
// one.
std::optional<AnswerText> answer_text(const OrderedJson& request);

}  // namespace walsh
