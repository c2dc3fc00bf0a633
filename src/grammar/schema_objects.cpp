// Objects: properties in the order of the schema, then others where they are allowed.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "grammar/pattern_automaton.h"
#include "grammar/schema_compiler.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr int64_t kMaxCounted = 2000;  // properties where their number is bounded

}  // namespace

// What the patterns of patternProperties say of every name, all together, besides what is known.
void SchemaCompiler::add_patterns(const FlatSchema& schema, const OrderedJson& names,
                                  std::vector<OrderedJson>& schemas) {
  if (!schema.keywords.contains("patternProperties")) return;
  for (const auto& [pattern, value] : schema.keywords["patternProperties"].items()) {
    const OrderedJson test = {{"type", "string"}, {"pattern", pattern}};
    const std::vector<bool> match = generates(test, names, schema.path + "/patternProperties");
    for (size_t i = 0; i < names.size(); ++i)
      if (match[i]) schemas[i] = SchemaReader::both(schemas[i], value);
  }
}

std::vector<SchemaCompiler::Property> SchemaCompiler::properties_of(const FlatSchema& schema) {
  const OrderedJson none = OrderedJson::object(), nothing = OrderedJson::array();
  const OrderedJson& keywords = schema.keywords;
  const OrderedJson& described = keywords.contains("properties") ? keywords["properties"] : none;
  const OrderedJson& required = keywords.contains("required") ? keywords["required"] : nothing;
  std::unordered_set<std::string> needed, known;
  for (const OrderedJson& name : required)
    needed.insert(name.get<std::string>());
  OrderedJson names = OrderedJson::array();
  for (const auto& [name, value] : described.items()) {
    known.insert(name);
    names.push_back(name);
  }
  for (const OrderedJson& name : required)
    if (known.insert(name.get<std::string>()).second) names.push_back(name);
  if (names.empty()) return {};
  std::vector<OrderedJson> patterned(names.size(), true);
  add_patterns(schema, names, patterned);
  std::vector<bool> named(names.size(), true);
  if (keywords.contains("propertyNames"))
    named = generates(SchemaReader::both({{"type", "string"}}, keywords["propertyNames"]), names,
                      schema.path + "/propertyNames");
  std::vector<Property> result;
  auto value = described.begin();
  for (size_t i = 0; i < names.size(); ++i) {
    OrderedJson own = true;
    if (value != described.end()) {
      own = *value++;
    } else if (patterned[i] == true && keywords.contains("additionalProperties")) {
      // What is required but not described is what additional properties are.
      own = keywords["additionalProperties"];
    }
    const auto name = names[i].get<std::string>();
    OrderedJson all = named[i] ? SchemaReader::both(own, patterned[i]) : OrderedJson(false);
    const bool needs = needed.contains(name);
    if (all == false && !needs) continue;
    result.push_back({name, needs, std::move(all), schema.path + "/properties/" + name});
  }
  return result;
}

// The key of a property that has none of the names.
NodeId SchemaCompiler::other_key(NodeId from, const FlatSchema& schema,
                                 const std::vector<std::string>& names) {
  const OrderedJson& keywords = schema.keywords;
  const bool patterns = keywords.contains("patternProperties");
  if (patterns || keywords.contains("propertyNames")) {
    OrderedJson key =
        keywords.contains("propertyNames") ? keywords["propertyNames"] : OrderedJson(true);
    key = SchemaReader::both({{"type", "string"}}, key);
    if (patterns)
      key = SchemaReader::both(key,
                               {{"pattern", keywords["patternProperties"].items().begin().key()}});
    return builder_.call(from, rule_of(key, schema.path + "/propertyNames"));
  }
  return json_.other_string(from, names);
}

// A node per number of properties that were passed, and per number of those that were written where
// that is bounded: 1 stands for "some" where it is not.
void SchemaCompiler::add_object(NodeId from, const FlatSchema& schema, NodeId to) {
  const OrderedJson& keywords = schema.keywords;
  const int64_t least = size_bound(schema, "minProperties", 0);
  const int64_t most = size_bound(schema, "maxProperties", -1);
  const std::vector<Property> properties = properties_of(schema);
  const bool patterns =
      keywords.contains("patternProperties") && !keywords["patternProperties"].empty();
  OrderedJson others =
      keywords.contains("additionalProperties")
          ? keywords["additionalProperties"]
          : OrderedJson(properties.empty() && !(keywords.contains("unevaluatedProperties") &&
                                                keywords["unevaluatedProperties"] == false));
  // Keys of patterns cannot be kept apart from names, nor from each other: none are written then.
  if (patterns || keywords.contains("propertyNames")) {
    if (!properties.empty() || (patterns && keywords["patternProperties"].size() > 1)) {
      others = false;
    } else if (patterns) {
      others = *keywords["patternProperties"].begin();
    }
  }
  const auto count = static_cast<int64_t>(properties.size());
  if (least > count + (others == false ? 0 : 1))
    reader_.refuse(schema.path + "/minProperties", "cannot be enforced");
  const bool counted = least > 1 || most >= 0;
  const int64_t largest = !counted ? 1 : most >= 0 ? most : least;
  if (largest * (count + 1) > kMaxCounted * 10)
    reader_.refuse(schema.path + (most >= 0 ? "/maxProperties" : "/minProperties"),
                   "cannot be enforced: too many properties");
  const auto more = [&](int64_t written) {
    return most >= 0 ? written + 1 : std::min(written + 1, largest);
  };
  const NodeId close = builder_.node(), spaced_close = builder_.node();
  builder_.byte(close, '}', '}', to);
  builder_.call(spaced_close, json_.space(), close);

  std::vector<NodeId> now = {builder_.call(builder_.text(from, "{"), json_.space())};
  const auto node = [&](std::vector<NodeId>& list, int64_t written) {
    while (static_cast<int64_t>(list.size()) <= written)
      list.push_back(builder_.node());
    return list[static_cast<size_t>(written)];
  };
  const auto before = [&](int64_t written) {
    const NodeId at = now[static_cast<size_t>(written)];
    return written == 0 ? at : json_.spaced(at, ",");
  };
  for (const Property& property : properties) {
    std::vector<NodeId> next;
    const std::string key = "\"" + json_letters(property.name) + "\"";
    const RuleId rule = rule_of(property.schema, property.path);
    for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i) {
      if (!property.required) builder_.empty(now[static_cast<size_t>(i)], node(next, i));
      if (most >= 0 && i == most) continue;
      const NodeId value = json_.spaced(builder_.text(before(i), key), ":");
      builder_.call(value, rule, node(next, more(i)));
    }
    if (next.empty()) return;  // more are required than allowed
    now = std::move(next);
  }
  const auto end = [&](NodeId at, int64_t written) {
    if (written >= least) builder_.empty(at, written == 0 ? close : spaced_close);
  };
  for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i)
    end(now[static_cast<size_t>(i)], i);
  if (others == false) return;
  std::vector<std::string> names;
  for (const Property& property : properties)
    names.push_back(property.name);
  const RuleId member = builder_.rule(schema.path + "/additionalProperties");
  const NodeId key = other_key(builder_.start(member), schema, names);
  builder_.call(json_.spaced(key, ":"), rule_of(others, schema.path + "/additionalProperties"),
                builder_.end(member));
  // Keys of others may be equal: they are one property for the least number, each one for the most.
  const RuleId further = builder_.rule(schema.path + "/additionalProperties");
  builder_.call(json_.spaced(builder_.start(further), ","), member, builder_.end(further));
  for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i) {
    if ((most >= 0 && i == most) || more(i) < least) continue;
    const NodeId first = builder_.call(before(i), member);
    builder_.empty(builder_.repeat(first, further, 0, most < 0 ? -1 : most - i - 1), spaced_close);
  }
}

}  // namespace walsh::grammar
