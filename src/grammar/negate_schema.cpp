// Negates a flat schema: each keyword gives an alternative with its opposite.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/flat_schema.h"

namespace walsh::grammar {
namespace {

using Pair = std::pair<const char*, const char*>;

// The negation of the bound `key` of a count is the keyword `opposite`, with a value that is `step`
// away.
struct CountBound {
  const char *key, *type, *opposite;
  int64_t step;
};
constexpr CountBound kCounts[] = {{"minLength", "string", "maxLength", -1},
                                  {"maxLength", "string", "minLength", 1},
                                  {"minItems", "array", "maxItems", -1},
                                  {"maxItems", "array", "minItems", 1},
                                  {"minProperties", "object", "maxProperties", -1},
                                  {"maxProperties", "object", "minProperties", 1}};
constexpr Pair kBounds[] = {{"minimum", "exclusiveMaximum"},
                            {"maximum", "exclusiveMinimum"},
                            {"exclusiveMinimum", "maximum"},
                            {"exclusiveMaximum", "minimum"}};

// All entries of the list keyword `key` must hold; it applies to values of `type` and has an
// opposite.
struct ListPair {
  const char *key, *type, *opposite;
};
constexpr ListPair kLists[] = {
    {"pattern", "string", "-pattern"},       {"-pattern", "string", "pattern"},
    {"format", "string", "-format"},         {"-format", "string", "format"},
    {"multipleOf", "number", "-multipleOf"}, {"-multipleOf", "number", "multipleOf"}};

}  // namespace

Ways SchemaReader::negate(const Ways& ways) const {
  Ways result = {FlatSchema{}};
  for (const FlatSchema& way : ways)
    result = multiply(result, negate(way));
  return result;
}

Ways SchemaReader::negate(const FlatSchema& way) const {
  const OrderedJson& words = way.keywords;
  spend(weight_of(words), way.path);
  Ways result;
  const auto add = [&](OrderedJson keywords) { result.push_back({std::move(keywords), way.path}); };
  if (const unsigned kinds = kAnyKind & ~kinds_of(words, where_ + way.path); kinds != 0)
    add({{"type", names_of(kinds)}});
  if (words.contains("enum")) add({{"-enum", words["enum"]}});
  if (words.contains("-enum")) add({{"enum", words["-enum"]}});
  for (const auto& [key, opposite] : kBounds)
    if (words.contains(key)) add({{"type", "number"}, {opposite, words[key]}});
  for (const CountBound& bound : kCounts) {
    if (!words.contains(bound.key)) continue;
    if (!words[bound.key].is_number()) refuse(way.path + "/" + bound.key, "a count is expected");
    const double count = words[bound.key].get<double>() + static_cast<double>(bound.step);
    if (count >= 0) add({{"type", bound.type}, {bound.opposite, count}});
  }
  for (const ListPair& list : kLists)
    if (words.contains(list.key))
      for (const OrderedJson& one : words[list.key])
        add({{"type", list.type}, {list.opposite, OrderedJson::array({one})}});
  if (words.contains("content"))
    refuse(way.path + "/contentMediaType", "cannot be enforced inside 'not', 'if' or 'oneOf'");
  negate_arrays(way, result);
  negate_objects(way, result);
  return result;
}

void SchemaReader::negate_arrays(const FlatSchema& way, Ways& result) const {
  const OrderedJson& words = way.keywords;
  const auto add = [&](OrderedJson keywords) {
    keywords["type"] = "array";
    result.push_back({std::move(keywords), way.path});
  };
  for (const char* key : {"uniqueItems", "unevaluatedItems"})
    if (words.contains(key))
      refuse(way.path + "/" + key, "cannot be enforced inside 'not', 'if' or 'oneOf'");
  const size_t count = words.contains("prefixItems") ? words["prefixItems"].size() : 0;
  OrderedJson any = OrderedJson::array();
  for (size_t i = 0; i < count; ++i) {
    OrderedJson prefix = any;
    prefix.push_back(opposite(words["prefixItems"][i]));
    if (prefix.back() != false) add({{"prefixItems", prefix}, {"minItems", i + 1}});
    any.push_back(true);
  }
  if (words.contains("items") && opposite(words["items"]) != false)
    add({{"contains", OrderedJson::array({{{"schema", opposite(words["items"])},
                                           {"least", 1},
                                           {"most", -1},
                                           {"from", count}}})}});
  if (!words.contains("contains")) return;
  for (OrderedJson entry : words["contains"]) {
    const auto least = entry["least"].get<int64_t>(), most = entry["most"].get<int64_t>();
    if (least > 0) {
      entry["least"] = 0;
      entry["most"] = least - 1;
      add({{"contains", OrderedJson::array({entry})}});
    }
    if (most >= 0) {
      entry["least"] = most + 1;
      entry["most"] = -1;
      add({{"contains", OrderedJson::array({entry})}});
    }
  }
}

void SchemaReader::negate_objects(const FlatSchema& way, Ways& result) const {
  const OrderedJson& words = way.keywords;
  const auto add = [&](OrderedJson keywords) {
    keywords["type"] = "object";
    result.push_back({std::move(keywords), way.path});
  };
  const OrderedJson none = OrderedJson::array();
  const auto has = [&](OrderedJson names, OrderedJson patterns, OrderedJson key,
                       OrderedJson value) {
    if (key == false || value == false) return;
    OrderedJson entry = {{"names", std::move(names)},
                         {"patterns", std::move(patterns)},
                         {"key", std::move(key)},
                         {"value", std::move(value)}};
    add({{"has", OrderedJson::array({std::move(entry)})}});
  };
  if (words.contains("properties"))
    for (const auto& [name, schema] : words["properties"].items())
      if (OrderedJson other = opposite(schema); other != false)
        add({{"properties", {{name, std::move(other)}}}, {"required", OrderedJson::array({name})}});
  if (words.contains("required"))
    for (const OrderedJson& name : words["required"])
      add({{"properties", {{name.get<std::string>(), false}}}});
  if (words.contains("patternProperties"))
    for (const OrderedJson& one : words["patternProperties"])
      has(none, none, {{"pattern", one[0]}}, opposite(one[1]));
  if (words.contains("propertyNames")) has(none, none, opposite(words["propertyNames"]), true);
  if (words.contains("others")) {
    for (const OrderedJson& one : words["others"]) {
      if (one["exact"] != true)
        refuse(way.path + "/unevaluatedProperties",
               "cannot be enforced inside 'not', 'if' or 'oneOf'");
      has(one["names"], one["patterns"], true, opposite(one["schema"]));
    }
  }
  if (!words.contains("has")) return;
  for (const OrderedJson& one : words["has"]) {
    const OrderedJson value = opposite(one["value"]);
    if (one["key"] == true) {
      OrderedJson entry = one;
      entry.erase("key");
      entry.erase("value");
      entry["schema"] = value;
      entry["exact"] = true;
      add({{"others", OrderedJson::array({std::move(entry)})}});
    } else if (one["value"] == true && one["names"].empty() && one["patterns"].empty()) {
      add({{"propertyNames", opposite(one["key"])}});
    } else if (one["key"].size() == 1 && one["key"].contains("pattern") && one["names"].empty() &&
               one["patterns"].empty()) {
      add({{"patternProperties",
            OrderedJson::array({OrderedJson::array({one["key"]["pattern"], value})})}});
    } else {
      refuse(way.path + "/not", "cannot be enforced: it is about the names of other properties");
    }
  }
}

}  // namespace walsh::grammar
