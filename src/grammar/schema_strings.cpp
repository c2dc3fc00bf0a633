// Compiles strings, as the conjunction of lengths, patterns and formats.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/pattern_sets.h"
#include "grammar/schema_compiler.h"
#include "grammar/string_formats.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

// A pattern with limited length may have this many states.
constexpr int64_t kCountedStates = 20'000;

}  // namespace

std::vector<std::string> SchemaCompiler::excluded_strings(const FlatSchema& schema) const {
  std::vector<std::string> texts;
  if (schema.keywords.contains("-enum"))
    for (const OrderedJson& value : schema.keywords["-enum"])
      if (value.is_string()) texts.push_back(value.get<std::string>());
  return texts;
}

// Returns all constraints on the characters as one automaton. There is none if any string is
// allowed, or any except a few that can be excluded separately.
SchemaCompiler::StringLimits SchemaCompiler::string_limits(const FlatSchema& schema) const {
  StringLimits limits{size_bound(schema, "minLength", 0), size_bound(schema, "maxLength", -1), {}};
  const auto scope_of = [&](const char* key) { return reader_.where() + schema.path + "/" + key; };
  const auto listed = [&](const char* key) {
    return schema.keywords.value(key, OrderedJson::array());
  };
  const auto format_named = [&](const OrderedJson& name) -> const StringFormat* {
    const StringFormat* format = find_format(name.get<std::string>());
    if (format != nullptr) return format;
    reader_.refuse(schema.path + "/format",
                   fmt::format("'{}' cannot be enforced", printable(name.get<std::string>(), 40)));
  };
  StepBudget& budget = builder_.budget();
  const auto add = [&](const PatternAutomaton& one, const std::string& where) {
    limits.pattern = limits.pattern ? texts_of_both(*limits.pattern, one, {where, budget}) : one;
  };
  const auto parsed = [&](const std::string& pattern, const char* key, PatternUse use) {
    return parse_pattern(pattern, scope_of(key), budget, use);
  };
  for (const OrderedJson& pattern : listed("pattern"))
    add(parsed(pattern.get<std::string>(), "pattern", PatternUse::json_string),
        scope_of("pattern"));
  for (const OrderedJson& name : listed("format"))
    if (const StringFormat* format = format_named(name); !format->pattern.empty())
      add(parsed(format->pattern, "format", PatternUse::json_string), scope_of("format"));
  std::vector<PatternAutomaton> refused;
  for (const OrderedJson& pattern : listed("-pattern"))
    refused.push_back(parsed(pattern.get<std::string>(), "pattern", PatternUse::exact));
  for (const OrderedJson& name : listed("-format")) {
    const StringFormat* format = format_named(name);
    if (format->superset.empty())
      reader_.refuse(schema.path + "/format", "cannot be enforced inside 'not', 'if' or 'oneOf'");
    refused.push_back(parsed(format->superset, "format", PatternUse::exact));
  }
  const auto texts = excluded_strings(schema);
  const bool any = refused.empty() && !limits.pattern && limits.least == 0 && limits.most < 0;
  if (!texts.empty() && !any) refused.push_back(these_texts(texts));
  if (!refused.empty() && !limits.pattern) limits.pattern = any_number_of(printable_codes());
  for (const PatternAutomaton& one : refused)
    add(other_texts(one, {scope_of("not"), budget}), scope_of("not"));
  if (limits.pattern && limits.most >= 0) {
    const auto states = static_cast<int64_t>(limits.pattern->states.size());
    limits.most = std::min(limits.most, std::max(limits.least, kCountedStates / states));
  }
  limits.most = countable(limits.least, limits.most);
  return limits;
}

// Adds a string that contains a JSON text.
void SchemaCompiler::add_json_string(NodeId from, const FlatSchema& schema, NodeId to) {
  // Strings may nest this deep inside of strings; each level doubles the backslashes.
  constexpr int kMostInside = 4;
  const std::string path = schema.path + "/contentSchema";
  const StringLimits limits = string_limits(schema);
  if (limits.pattern || limits.least > 0 || limits.most >= 0 || !excluded_strings(schema).empty())
    reader_.refuse(schema.path + "/contentMediaType",
                   "cannot be enforced beside other conditions on the string");
  if (depth_ >= kMostInside) {
    throw Error(ErrorCode::limit, reader_.where() + path,
                fmt::format("JSON texts in strings are nested more than {} times", kMostInside));
  }
  OrderedJson content = true;
  for (const OrderedJson& one : schema.keywords["content"])
    content = SchemaReader::both(content, one);
  GraphBuilder inner(builder_.where(), builder_);
  SchemaCompiler compiler(inner, root_, depth_ + 1);
  const RuleId text = compiler.compile(content, path);
  if (inner.has_distinct_lists())
    reader_.refuse(path, "uniqueItems cannot be enforced in a JSON text inside of a string");
  const NodeId inside = builder_.text(from, "\"");
  builder_.byte(builder_.in_string(inside, inner, text), '"', '"', to);
}

void SchemaCompiler::add_string(NodeId from, const FlatSchema& schema, NodeId to) {
  if (schema.keywords.contains("content")) return add_json_string(from, schema, to);
  const auto [least, most, pattern] = string_limits(schema);
  if (most >= 0 && most < least) return;
  if (pattern) return add_pattern_string(builder_, json_, *pattern, least, most, from, to);
  if (const auto names = excluded_strings(schema); !names.empty()) {
    builder_.empty(json_.other_string(from, names), to);
    return;
  }
  const bool one_form = schema.keywords.contains("oneForm");
  if (least == 0 && most < 0) {
    if (one_form) return builder_.empty(json_.other_string(from, {}), to);
    return builder_.call(from, json_.string(), to);
  }
  const RuleId character = one_form ? json_.letter() : json_.character();
  const NodeId inside = builder_.text(from, "\"");
  builder_.byte(builder_.repeat(inside, character, least, most), '"', '"', to);
}

bool SchemaCompiler::is_text(const FlatSchema& schema) const {
  const auto values = schema.keywords.find("enum");
  if (values == schema.keywords.end()) return meant_kinds(schema) == kString;
  return std::all_of(values->begin(), values->end(),
                     [](const OrderedJson& value) { return value.is_string(); });
}

NodeId SchemaCompiler::add_text(NodeId from, const FlatSchema& schema, const std::string& mark,
                                const std::string& gap) {
  const std::string end = gap + mark;
  if (schema.keywords.contains("enum")) {
    std::vector<std::string> texts;
    for (const OrderedJson& value : values_of(schema))
      if (value.get_ref<const std::string&>().find(mark) == std::string::npos)
        texts.push_back(value.get<std::string>());
    if (texts.empty())
      reader_.refuse(schema.path + "/enum",
                     "has no value that this form of tool calls can express");
    return builder_.text(builder_.any_text(from, texts), end);
  }
  if (schema.keywords.contains("content"))
    reader_.refuse(schema.path + "/contentMediaType",
                   "cannot be enforced in this form of tool calls");
  const auto [least, most, pattern] = string_limits(schema);
  if (!pattern && least == 0 && most < 0) return builder_.until(from, mark);
  if (most >= 0 && most < least) reader_.refuse(schema.path + "/maxLength", "is below minLength");
  const auto first = static_cast<char32_t>(static_cast<uint8_t>(mark.front()));
  const CodeSet others = complement({{first, first}});
  if (!pattern) {
    const RuleId character = builder_.rule("character");
    builder_.one_of(builder_.start(character), others, builder_.end(character));
    return builder_.text(builder_.repeat(from, character, least, most), end);
  }
  const NodeId to = builder_.node();
  if (!add_counted_pattern(builder_, *pattern, others, least, most, from, to))
    reader_.refuse(schema.path, "no text without '" + mark.substr(0, 1) + "' matches");
  return builder_.text(to, end);
}

}  // namespace walsh::grammar
