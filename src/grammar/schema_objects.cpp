// Compiles objects. Properties come in the order of the schema, then additional ones where they are
// allowed.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "grammar/pattern_sets.h"
#include "grammar/schema_compiler.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

// This many properties are counted, if their number is limited.
constexpr int64_t kMaxCounted = 2000;
constexpr size_t kMaxWitnesses = 64;  // required properties may be met in this many ways
constexpr size_t kMaxPatterns = 4;    // the combinations of this many patterns are distinguished

}  // namespace

const PatternAutomaton& SchemaCompiler::exact_pattern(const std::string& pattern,
                                                      const std::string& path) {
  const auto known = patterns_.find(pattern);
  if (known != patterns_.end()) return known->second;
  return patterns_
      .emplace(pattern, parse_pattern(pattern, reader_.where() + path + "/patternProperties",
                                      builder_.budget(), PatternUse::exact))
      .first->second;
}

// Returns the schema that a property has to satisfy by patterns and rules for other properties,
// besides its own.
OrderedJson SchemaCompiler::schema_of_name(const FlatSchema& schema, const std::string& name) {
  OrderedJson result = true;
  const auto matches = [&](const OrderedJson& pattern) {
    const PatternAutomaton& exact = exact_pattern(pattern.get<std::string>(), schema.path);
    builder_.budget().spend(1 + name.size() * 4, reader_.where() + schema.path);
    return has_text(exact, name);
  };
  if (schema.keywords.contains("patternProperties"))
    for (const OrderedJson& one : schema.keywords["patternProperties"])
      if (matches(one[0])) result = SchemaReader::both(result, one[1]);
  if (!schema.keywords.contains("others")) return result;
  for (const OrderedJson& one : schema.keywords["others"]) {
    if (one["schema"] == true) continue;
    const OrderedJson& names = one["names"];
    builder_.budget().spend(1 + names.size() / 8, reader_.where() + schema.path);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (std::any_of(one["patterns"].begin(), one["patterns"].end(), matches)) continue;
    result = SchemaReader::both(result, one["schema"]);
  }
  return result;
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
  std::vector<bool> named(names.size(), true);
  if (keywords.contains("propertyNames"))
    named =
        generates(reader_.read(SchemaReader::both({{"type", "string"}}, keywords["propertyNames"]),
                               schema.path + "/propertyNames"),
                  names, schema.path + "/propertyNames");
  std::vector<Property> result;
  auto value = described.begin();
  for (size_t i = 0; i < names.size(); ++i) {
    OrderedJson own = true;
    if (value != described.end()) own = *value++;
    const auto name = names[i].get<std::string>();
    OrderedJson all = OrderedJson(false);
    if (named[i] && own != false) all = SchemaReader::both(own, schema_of_name(schema, name));
    const bool needs = needed.contains(name);
    if (all == false && !needs) continue;
    result.push_back({name, needs, std::move(all), schema.path + "/properties/" + name});
  }
  return result;
}

// Returns one alternative for each described property that may be the one which must be present, if
// the schema asks for one.
std::vector<FlatSchema> SchemaCompiler::with_witnesses(const FlatSchema& schema) {
  std::vector<FlatSchema> all = {schema};
  all[0].keywords.erase("has");
  if (!schema.keywords.contains("has")) return all;
  for (const OrderedJson& entry : schema.keywords["has"]) {
    std::vector<FlatSchema> more;
    const OrderedJson& excluded = entry["names"];
    for (const Property& property : properties_of(schema)) {
      if (property.schema == false ||
          std::find(excluded.begin(), excluded.end(), property.name) != excluded.end() ||
          std::any_of(entry["patterns"].begin(), entry["patterns"].end(),
                      [&](const OrderedJson& pattern) {
                        return has_text(exact_pattern(pattern, schema.path), property.name);
                      }))
        continue;
      if (entry["key"] != true &&
          !generates(
              reader_.read(SchemaReader::both({{"type", "string"}}, entry["key"]), schema.path),
              OrderedJson::array({property.name}), schema.path)[0])
        continue;
      FlatSchema witness{{{"properties", {{property.name, entry["value"]}}},
                          {"required", OrderedJson::array({property.name})}},
                         schema.path};
      for (FlatSchema& one : reader_.multiply(all, {witness}))
        more.push_back(std::move(one));
      if (more.size() > kMaxWitnesses)
        reader_.refuse(
            schema.path,
            "cannot be enforced: too many properties may be present besides those described");
    }
    all = std::move(more);
  }
  return all;
}

// Groups names without a schema of their own by the combination of patterns that they match.
std::vector<SchemaCompiler::OtherKeys> SchemaCompiler::other_keys(const FlatSchema& schema,
                                                                  bool described) {
  const OrderedJson& keywords = schema.keywords;
  std::set<std::string> patterns;
  OrderedJson names = OrderedJson::array();
  std::set<std::string> known;
  const auto add_name = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  const auto own = keywords.value("patternProperties", OrderedJson::array());
  const auto others = keywords.value("others", OrderedJson::array());
  for (const OrderedJson& one : own)
    patterns.insert(one[0].get<std::string>());
  if (keywords.contains("properties"))
    for (const auto& [name, value] : keywords["properties"].items())
      add_name(name);
  if (keywords.contains("required"))
    for (const OrderedJson& name : keywords["required"])
      add_name(name);
  for (const OrderedJson& one : others) {
    for (const OrderedJson& pattern : one["patterns"])
      patterns.insert(pattern.get<std::string>());
    for (const OrderedJson& name : one["names"])
      add_name(name);
  }
  const std::vector<std::string> list(patterns.begin(), patterns.end());
  std::vector<OtherKeys> result;
  for (size_t chosen = 0; chosen < (size_t{1} << std::min(list.size(), kMaxPatterns)); ++chosen) {
    // With many patterns, a name matches at most one of them.
    size_t subset = chosen;
    if (list.size() > kMaxPatterns) {
      if (chosen > list.size()) break;
      subset = chosen == 0 ? 0 : size_t{1} << (chosen - 1);
    }
    if (subset == 0 && (others.empty() && (described || !list.empty()))) continue;
    std::set<std::string> matched;
    OrderedJson match = OrderedJson::array(), other = OrderedJson::array();
    for (size_t i = 0; i < list.size(); ++i) {
      const bool in = i < 60 && (subset >> i & 1) != 0;
      (in ? match : other).push_back(list[i]);
      if (in) matched.insert(list[i]);
    }
    OrderedJson value = true;
    for (const OrderedJson& one : own)
      if (matched.contains(one[0].get<std::string>())) value = SchemaReader::both(value, one[1]);
    for (const OrderedJson& one : others)
      if (std::none_of(one["patterns"].begin(), one["patterns"].end(), [&](const OrderedJson& p) {
            return matched.contains(p.get<std::string>());
          }))
        value = SchemaReader::both(value, one["schema"]);
    if (value == false) continue;
    FlatSchema key{{{"type", "string"}}, schema.path + "/propertyNames"};
    if (!match.empty()) key.keywords["pattern"] = match;
    if (!other.empty()) key.keywords["-pattern"] = other;
    if (!names.empty()) key.keywords["-enum"] = names;
    Ways keys = {key};
    if (keywords.contains("propertyNames"))
      keys = reader_.multiply(keys, reader_.read(keywords["propertyNames"], key.path));
    if (!keys.empty()) result.push_back({std::move(keys), std::move(value)});
  }
  return result;
}

void SchemaCompiler::add_object(NodeId from, const FlatSchema& schema, NodeId to) {
  for (const FlatSchema& way : with_witnesses(schema))
    add_members(from, way, to);
}

// Makes one node per number of properties passed, and per number of those written if that is
// limited; otherwise the number 1 stands for "some".
void SchemaCompiler::add_members(NodeId from, const FlatSchema& schema, NodeId to) {
  const int64_t least = size_bound(schema, "minProperties", 0);
  const int64_t most = size_bound(schema, "maxProperties", -1);
  std::vector<Property> properties = properties_of(schema);
  if (schema.keywords.contains("sortedNames"))
    std::sort(properties.begin(), properties.end(),
              [](const Property& a, const Property& b) { return a.name < b.name; });
  auto others = other_keys(schema, !properties.empty());
  if (const auto list = schema.keywords.find("oneForm"); list != schema.keywords.end()) {
    // Others could come in any order.
    if (properties.empty() && !others.empty())
      reader_.refuse(list->get<std::string>(),
                     "cannot be enforced: its items are objects without 'properties'");
    others.clear();
  }
  const auto count = static_cast<int64_t>(properties.size());
  if (least > count + (others.empty() ? 0 : 1))
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
    const RuleId rule = inner_rule(schema, property.schema, property.path);
    for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i) {
      if (!property.required) builder_.empty(now[static_cast<size_t>(i)], node(next, i));
      if (most >= 0 && i == most) continue;
      const NodeId value = json_.spaced(builder_.text(before(i), key), ":");
      builder_.call(value, rule, node(next, more(i)));
    }
    if (next.empty()) return;  // more properties are required than allowed
    now = std::move(next);
  }
  const auto end = [&](NodeId at, int64_t written) {
    if (written >= least) builder_.empty(at, written == 0 ? close : spaced_close);
  };
  for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i)
    end(now[static_cast<size_t>(i)], i);
  if (others.empty()) return;
  const RuleId member = builder_.rule(schema.path + "/additionalProperties");
  for (const OtherKeys& other : others) {
    const NodeId key = builder_.node();
    for (const FlatSchema& way : other.keys)
      add_flat(builder_.start(member), way, key);
    builder_.call(json_.spaced(key, ":"),
                  rule_of(other.schema, schema.path + "/additionalProperties"),
                  builder_.end(member));
  }
  // Additional keys may repeat: they count as one property for the minimum, and each for the
  // maximum.
  const RuleId further = builder_.rule(schema.path + "/additionalProperties");
  builder_.call(json_.spaced(builder_.start(further), ","), member, builder_.end(further));
  for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i) {
    if ((most >= 0 && i == most) || more(i) < least) continue;
    const NodeId first = builder_.call(before(i), member);
    builder_.empty(builder_.repeat(first, further, 0, most < 0 ? -1 : most - i - 1), spaced_close);
  }
}

}  // namespace walsh::grammar
