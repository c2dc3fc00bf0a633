// Turns the keywords of a schema into those of flat schemas.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/flat_schema.h"

namespace walsh::grammar {
namespace {

// Old drafts have these keywords, which are unknown today; schemas with them are refused.
constexpr std::array kRefused = {"disallow", "extends"};
// These keywords are taken over unchanged.
constexpr std::array kPlain = {"type",          "enum",          "minLength",
                               "maxLength",     "minItems",      "maxItems",
                               "minProperties", "maxProperties", "required"};

// Returns whether `name` is a content encoding that can be checked on the text.
bool is_encoding(const OrderedJson& name) {
  return name == "base64" || name == "base64url" || name == "base32" || name == "base16";
}

bool is_json(const OrderedJson& media_type) {
  return media_type == "application/json";
}

}  // namespace

void Evaluated::add(const Evaluated& other) {
  names.insert(other.names.begin(), other.names.end());
  patterns.insert(other.patterns.begin(), other.patterns.end());
  all_properties |= other.all_properties;
  all_items |= other.all_items;
  items = std::max(items, other.items);
}

void SchemaReader::check_keywords(const OrderedJson& schema, const std::string& path) const {
  if (!schema.is_object()) refuse(path, "a schema is an object or a boolean");
  for (const char* key : kRefused)
    if (schema.contains(key)) refuse(path + "/" + key, "cannot be enforced");
  const auto list = schema.find("required");
  if (list != schema.end() &&
      (!list->is_array() || !std::all_of(list->begin(), list->end(),
                                         [](const OrderedJson& name) { return name.is_string(); })))
    refuse(path + "/required", "a list of names is expected");
  for (const char* key : {"properties", "patternProperties"})
    if (schema.contains(key) && !schema[key].is_object())
      refuse(path + "/" + key, "an object is expected");
  for (const char* key : {"enum", "prefixItems", "allOf", "anyOf", "oneOf"})
    if (schema.contains(key) && (!schema[key].is_array() || schema[key].empty()))
      refuse(path + "/" + key, "a non-empty list is expected");
  for (const char* key : {"pattern", "format"})
    if (schema.contains(key) && !schema[key].is_string())
      refuse(path + "/" + key, "a string is expected");
}

FlatSchema SchemaReader::own_keywords(const OrderedJson& schema, const std::string& path) const {
  FlatSchema own;
  own.path = path;
  OrderedJson& words = own.keywords;
  for (const auto& [key, value] : schema.items()) {
    if (std::find(kPlain.begin(), kPlain.end(), key) != kPlain.end()) words[key] = value;
    if (key == "pattern") words[key] = OrderedJson::array({value});
    if (key == "format" || (key == "contentEncoding" && is_encoding(value)))
      words["format"].push_back(value);
    if (key == "contentMediaType" && is_json(value))
      words["content"].push_back(own_content(schema, path));
  }
  own_numbers(schema, path, words);
  own_arrays(schema, path, own);
  own_objects(schema, own);
  if (schema.contains("const")) {
    auto merged = merge(words, {{"enum", OrderedJson::array({schema["const"]})}}, path);
    words = merged ? std::move(*merged) : OrderedJson(false);
  }
  return own;
}

// Returns the schema of the JSON text that a string contains.
OrderedJson SchemaReader::own_content(const OrderedJson& schema, const std::string& path) const {
  if (schema.contains("contentEncoding") && is_encoding(schema["contentEncoding"]))
    refuse(path + "/contentMediaType", "cannot be enforced beside contentEncoding");
  return schema.contains("contentSchema") ? schema["contentSchema"] : OrderedJson(true);
}

// Reads bounds and multiples. Draft 4 has boolean exclusive bounds, and draft 3 another name for
// multipleOf.
void SchemaReader::own_numbers(const OrderedJson& schema, const std::string& path,
                               OrderedJson& own) const {
  for (const auto& [bound, excluded] :
       {std::pair{"minimum", "exclusiveMinimum"}, std::pair{"maximum", "exclusiveMaximum"}}) {
    const bool flag = schema.contains(excluded) && schema[excluded].is_boolean();
    if (schema.contains(bound))
      own[flag && schema[excluded] == true ? excluded : bound] = schema[bound];
    if (schema.contains(excluded) && !flag) own[excluded] = schema[excluded];
    for (const char* key : {bound, excluded})
      if (own.contains(key) && !own[key].is_number())
        refuse(path + "/" + key, "a number is expected");
  }
  for (const char* key : {"multipleOf", "divisibleBy"})
    if (schema.contains(key)) own["multipleOf"].push_back(schema[key]);
}

void SchemaReader::own_arrays(const OrderedJson& schema, const std::string& path,
                              FlatSchema& own) const {
  OrderedJson& words = own.keywords;
  // In older drafts `items` may be the list that is called prefixItems today.
  const bool tuple = schema.contains("items") && schema["items"].is_array();
  const char* rest = tuple ? "additionalItems" : "items";
  if (tuple && !schema["items"].empty()) {
    words["prefixItems"] = schema["items"];
  } else if (schema.contains("prefixItems")) {
    words["prefixItems"] = schema["prefixItems"];
  }
  if (schema.contains(rest)) words["items"] = schema[rest];
  own.evaluated.all_items = schema.contains(rest);
  if (words.contains("prefixItems")) own.evaluated.items = words["prefixItems"].size();
  if (schema.contains("uniqueItems")) {
    if (!schema["uniqueItems"].is_boolean())
      refuse(path + "/uniqueItems", "true or false is expected");
    if (schema["uniqueItems"] == true) words["uniqueItems"] = true;
  }
  if (!schema.contains("contains")) return;
  const auto count = [&](const char* key, int64_t otherwise) {
    if (!schema.contains(key)) return otherwise;
    const OrderedJson& value = schema[key];
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= 1e9) ||
        number != static_cast<double>(static_cast<int64_t>(number)))
      refuse(path + "/" + key, "a count is expected");
    return static_cast<int64_t>(number);
  };
  words["contains"].push_back({{"schema", schema["contains"]},
                               {"least", count("minContains", 1)},
                               {"most", count("maxContains", -1)},
                               {"from", 0}});
}

void SchemaReader::own_objects(const OrderedJson& schema, FlatSchema& own) const {
  OrderedJson& words = own.keywords;
  Evaluated& known = own.evaluated;
  OrderedJson names = OrderedJson::array(), patterns = OrderedJson::array();
  if (schema.contains("properties")) {
    words["properties"] = schema["properties"];
    for (const auto& [name, value] : schema["properties"].items()) {
      names.push_back(name);
      known.names.insert(name);
    }
  }
  if (schema.contains("patternProperties")) {
    for (const auto& [pattern, value] : schema["patternProperties"].items()) {
      words["patternProperties"].push_back(OrderedJson::array({pattern, value}));
      patterns.push_back(pattern);
      known.patterns.insert(pattern);
    }
  }
  if (schema.contains("propertyNames")) words["propertyNames"] = schema["propertyNames"];
  if (!schema.contains("additionalProperties")) return;
  known.all_properties = true;
  words["others"].push_back({{"names", std::move(names)},
                             {"patterns", std::move(patterns)},
                             {"schema", schema["additionalProperties"]},
                             {"exact", true}});
}

}  // namespace walsh::grammar
