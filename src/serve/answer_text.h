// Reads the form that a request requires of the answer's text. Its fields are OpenAI's
// response_format, llama.cpp's grammar and json_schema, and vLLM's guided_* and structured_outputs.
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
  std::string source;  // it is a GBNF grammar or a regular expression
  OrderedJson schema;
  std::vector<std::string> choice;  // the answer is one of these texts
  std::string field;                // messages name this field of the request

  // Adds the rule of the form. Throws as add_gbnf and add_json_schema.
  grammar::RuleId add_to(grammar::GraphBuilder& builder) const;
  // Returns a text that identifies the form among all others.
  std::string key() const;
};

// Returns the form, or nothing if any text is allowed. Throws ApiError for a malformed field and
// for more than one.
std::optional<AnswerText> answer_text(const OrderedJson& request);

}  // namespace walsh
