#include "serve/answer_text.h"

#include <fmt/format.h>

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "serve/api_error.h"

namespace walsh {
namespace {

using Kind = AnswerText::Kind;

[[noreturn]] void refuse(const std::string& path, const std::string& expected) {
  throw ApiError(400, fmt::format("'{}' must be {}", path, expected), path);
}

const OrderedJson* find(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

AnswerText gbnf(const OrderedJson& value, const std::string& path) {
  if (!value.is_string()) refuse(path, "a grammar in GBNF, a string");
  return {Kind::gbnf, value.get<std::string>(), {}, {}, path};
}

// Clients of vLLM may send a schema as text.
AnswerText schema(const OrderedJson& value, const std::string& path) {
  if (value.is_object() || value.is_boolean()) return {Kind::schema, "", value, {}, path};
  if (!value.is_string()) refuse(path, "a JSON schema");
  try {
    return {Kind::schema, "", parse_ordered_json(value.get<std::string>(), path), {}, path};
  } catch (const Error& e) {
    throw ApiError(400, e.what(), path);
  }
}

AnswerText choice(const OrderedJson& value, const std::string& path) {
  AnswerText answer{Kind::choice, "", {}, {}, path};
  if (!value.is_array() || value.empty()) refuse(path, "a list of texts");
  for (const OrderedJson& text : value) {
    if (!text.is_string()) refuse(path, "a list of texts");
    answer.choice.push_back(text.get<std::string>());
  }
  return answer;
}

std::optional<AnswerText> response_format(const OrderedJson& format) {
  const std::string path = "response_format";
  if (!format.is_object()) refuse(path, "an object");
  const OrderedJson* type = find(format, "type");
  const std::string name =
      type != nullptr && type->is_string() ? type->get<std::string>() : "nothing";
  if (name == "text") return std::nullopt;
  if (name == "json_object") {
    const OrderedJson* own = find(format, "schema");
    if (own != nullptr) return schema(*own, path + ".schema");
    return AnswerText{Kind::object, "", {}, {}, path};
  }
  if (name != "json_schema") refuse(path + ".type", "text, json_object or json_schema");
  const OrderedJson* outer = find(format, "json_schema");
  if (outer != nullptr && !outer->is_object()) refuse(path + ".json_schema", "an object");
  const OrderedJson* inner = find(outer != nullptr ? *outer : format, "schema");
  const std::string where = path + (outer != nullptr ? ".json_schema.schema" : ".schema");
  if (inner == nullptr) refuse(where, "a JSON schema");
  return schema(*inner, where);
}

}  // namespace

grammar::RuleId AnswerText::add_to(grammar::GraphBuilder& builder) const {
  switch (kind) {
    case Kind::gbnf:
      return add_gbnf(builder, gbnf);
    case Kind::schema:
      return add_json_schema(builder, schema);
    case Kind::object:
      return add_json_object(builder);
    case Kind::choice:
      break;
  }
  const grammar::RuleId rule = builder.rule(field);
  builder.empty(builder.any_text(builder.start(rule), choice), builder.end(rule));
  return rule;
}

std::string AnswerText::key() const {
  std::string key = fmt::format("{} {} ", static_cast<int>(kind), gbnf);
  if (kind == Kind::schema) key += schema.dump();
  for (const std::string& text : choice)
    key += fmt::format("{} {}", text.size(), text);
  return key;
}

std::optional<AnswerText> answer_text(const OrderedJson& request) {
  std::optional<AnswerText> answer;
  const auto add = [&](std::optional<AnswerText> one) {
    if (!one) return;
    if (answer) refuse(one->field, fmt::format("absent where '{}' is given", answer->field));
    answer = std::move(one);
  };
  const auto read = [&](const OrderedJson& object, const char* key, const std::string& path,
                        auto reader) {
    if (const OrderedJson* value = find(object, key)) add(reader(*value, path));
  };
  read(request, "response_format", "response_format",
       [](const OrderedJson& value, const std::string&) { return response_format(value); });
  read(request, "grammar", "grammar", gbnf);
  read(request, "json_schema", "json_schema", schema);
  read(request, "guided_json", "guided_json", schema);
  read(request, "guided_grammar", "guided_grammar", gbnf);
  read(request, "guided_choice", "guided_choice", choice);
  if (find(request, "guided_regex") != nullptr)
    refuse("guided_regex", "absent: use a grammar or a schema with a pattern");
  if (const OrderedJson* outputs = find(request, "structured_outputs")) {
    if (!outputs->is_object()) refuse("structured_outputs", "an object");
    read(*outputs, "json", "structured_outputs.json", schema);
    read(*outputs, "grammar", "structured_outputs.grammar", gbnf);
    read(*outputs, "choice", "structured_outputs.choice", choice);
    for (const char* key : {"regex", "structural_tag"})
      if (find(*outputs, key) != nullptr)
        refuse(std::string("structured_outputs.") + key, "absent: use a grammar or a schema");
    if (const OrderedJson* object = find(*outputs, "json_object");
        object != nullptr && *object == true)
      add(AnswerText{Kind::object, "", {}, {}, "structured_outputs.json_object"});
  }
  return answer;
}

}  // namespace walsh
