#include "serve/answer_text.h"

#include <fmt/format.h>

#include <set>

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/pattern_automaton.h"
#include "io/printable.h"
#include "serve/api_error.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

using Kind = AnswerText::Kind;

AnswerText gbnf(const OrderedJson& value, const std::string& path) {
  if (!value.is_string()) refuse_value(path, "a grammar in GBNF, a string");
  return {Kind::gbnf, value.get<std::string>(), {}, {}, path};
}

AnswerText regex(const OrderedJson& value, const std::string& path) {
  if (!value.is_string()) refuse_value(path, "a regular expression, a string");
  return {Kind::regex, value.get<std::string>(), {}, {}, path};
}

// Clients of vLLM may send the schema as a string.
AnswerText schema(const OrderedJson& value, const std::string& path) {
  if (value.is_object() || value.is_boolean()) return {Kind::schema, "", value, {}, path};
  if (!value.is_string()) refuse_value(path, "a JSON schema");
  try {
    return {Kind::schema, "", parse_ordered_json(value.get<std::string>(), path), {}, path};
  } catch (const Error& e) {
    throw ApiError(400, e.what(), path);
  }
}

AnswerText choice(const OrderedJson& value, const std::string& path) {
  AnswerText answer{Kind::choice, "", {}, {}, path};
  if (!value.is_array() || value.empty()) refuse_value(path, "a list of texts");
  for (const OrderedJson& text : value) {
    if (!text.is_string()) refuse_value(path, "a list of texts");
    answer.choice.push_back(text.get<std::string>());
  }
  return answer;
}

// Refuses the other constraints that vLLM has, because an answer must not ignore one.
void check_names(const OrderedJson& outputs) {
  // The last three choose how vLLM compiles a grammar, or the space between the members of JSON.
  static const std::set<std::string, std::less<>> known = {"json",
                                                           "grammar",
                                                           "choice",
                                                           "regex",
                                                           "json_object",
                                                           "disable_fallback",
                                                           "disable_any_whitespace",
                                                           "whitespace_pattern"};
  for (const auto& [name, value] : outputs.items())
    if (!value.is_null() && !known.contains(name))
      refuse_value("structured_outputs." + printable(name, 40),
                   "absent: json, regex, choice, grammar or json_object are supported");
}

std::optional<AnswerText> response_format(const OrderedJson& format) {
  const std::string path = "response_format";
  if (!format.is_object()) refuse_value(path, "an object");
  const OrderedJson* type = find_value(format, "type");
  const std::string name =
      type != nullptr && type->is_string() ? type->get<std::string>() : "nothing";
  if (name == "text") return std::nullopt;
  if (name == "json_object") {
    const OrderedJson* own = find_value(format, "schema");
    if (own != nullptr) return schema(*own, path + ".schema");
    return AnswerText{Kind::object, "", {}, {}, path};
  }
  if (name != "json_schema") refuse_value(path + ".type", "text, json_object or json_schema");
  const OrderedJson* outer = find_value(format, "json_schema");
  if (outer != nullptr && !outer->is_object()) refuse_value(path + ".json_schema", "an object");
  const OrderedJson* inner = find_value(outer != nullptr ? *outer : format, "schema");
  const std::string where = path + (outer != nullptr ? ".json_schema.schema" : ".schema");
  if (inner == nullptr) refuse_value(where, "a JSON schema");
  return schema(*inner, where);
}

}  // namespace

grammar::RuleId AnswerText::add_to(grammar::GraphBuilder& builder) const {
  switch (kind) {
    case Kind::gbnf:
      return add_gbnf(builder, source);
    case Kind::schema:
      return add_json_schema(builder, schema);
    case Kind::object:
      return add_json_object(builder);
    case Kind::regex:
    case Kind::choice:
      break;
  }
  const grammar::RuleId rule = builder.rule(field);
  if (kind == Kind::regex) {
    const auto pattern =
        grammar::parse_pattern(source, field, builder.budget(), grammar::PatternUse::text);
    add_pattern_text(builder, pattern, builder.start(rule), builder.end(rule));
    return rule;
  }
  builder.empty(builder.any_text(builder.start(rule), choice), builder.end(rule));
  return rule;
}

std::string AnswerText::key() const {
  std::string key = fmt::format("{} {} ", static_cast<int>(kind), source);
  if (kind == Kind::schema) key += schema.dump();
  for (const std::string& text : choice)
    key += fmt::format("{} {}", text.size(), text);
  return key;
}

std::optional<AnswerText> answer_text(const OrderedJson& request) {
  std::optional<AnswerText> answer;
  const auto add = [&](std::optional<AnswerText> one) {
    if (!one) return;
    if (answer) refuse_value(one->field, fmt::format("absent if '{}' is given", answer->field));
    answer = std::move(one);
  };
  const auto read = [&](const OrderedJson& object, const char* key, const std::string& path,
                        auto reader) {
    if (const OrderedJson* value = find_value(object, key)) add(reader(*value, path));
  };
  read(request, "response_format", "response_format",
       [](const OrderedJson& value, const std::string&) { return response_format(value); });
  read(request, "grammar", "grammar", gbnf);
  read(request, "json_schema", "json_schema", schema);
  read(request, "guided_json", "guided_json", schema);
  read(request, "guided_grammar", "guided_grammar", gbnf);
  read(request, "guided_choice", "guided_choice", choice);
  read(request, "guided_regex", "guided_regex", regex);
  if (const OrderedJson* outputs = find_value(request, "structured_outputs")) {
    if (!outputs->is_object()) refuse_value("structured_outputs", "an object");
    read(*outputs, "json", "structured_outputs.json", schema);
    read(*outputs, "grammar", "structured_outputs.grammar", gbnf);
    read(*outputs, "choice", "structured_outputs.choice", choice);
    read(*outputs, "regex", "structured_outputs.regex", regex);
    check_names(*outputs);
    if (const OrderedJson* object = find_value(*outputs, "json_object");
        object != nullptr && *object == true)
      add(AnswerText{Kind::object, "", {}, {}, "structured_outputs.json_object"});
  }
  return answer;
}

}  // namespace walsh
