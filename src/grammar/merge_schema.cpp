// What two flat schemas allow together, and whether they allow anything together.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "grammar/flat_schema.h"

namespace walsh::grammar {
namespace {

// The values of a list, to look for others among them.
class ValueSet {
 public:
  explicit ValueSet(const OrderedJson& list) {
    for (const OrderedJson& value : list)
      values_.push_back(&value);
    std::sort(values_.begin(), values_.end(), before);
  }
  bool has(const OrderedJson& value) const {
    return std::binary_search(values_.begin(), values_.end(), &value, before);
  }

 private:
  static bool before(const OrderedJson* a, const OrderedJson* b) { return *a < *b; }

  std::vector<const OrderedJson*> values_;
};

size_t size_of(const OrderedJson& schema, const char* key) {
  const auto found = schema.find(key);
  return found == schema.end() ? 0 : found->size();
}

// Who takes properties that are not named; all are taken without an answer.
const OrderedJson& additional(const OrderedJson& schema) {
  static const OrderedJson kYes = true;
  for (const char* key : {"additionalProperties", "unevaluatedProperties"})
    if (schema.contains(key)) return schema[key];
  return kYes;
}

OrderedJson merge_properties(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson result = OrderedJson::object();
  const OrderedJson none = OrderedJson::object();
  const OrderedJson& x = a.contains("properties") ? a["properties"] : none;
  const OrderedJson& y = b.contains("properties") ? b["properties"] : none;
  const Members known = members_of(a, "properties"), others = members_of(b, "properties");
  // unevaluatedProperties looks at the whole schema, additionalProperties at its own neighbours.
  const auto other = [](const OrderedJson& schema) {
    return schema.contains("additionalProperties") ? schema["additionalProperties"]
                                                   : OrderedJson(true);
  };
  for (const auto& [name, schema] : x.items()) {
    const auto same = others.find(name);
    append(result, name,
           SchemaReader::both(schema, same != others.end() ? *same->second : other(b)));
  }
  for (const auto& [name, schema] : y.items())
    if (!known.contains(name)) append(result, name, SchemaReader::both(other(a), schema));
  return result;
}

OrderedJson merge_prefixes(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson result = OrderedJson::array();
  const auto item = [](const OrderedJson& schema, size_t i) -> OrderedJson {
    if (schema.contains("prefixItems") && i < schema["prefixItems"].size())
      return schema["prefixItems"][i];
    return schema.contains("items") ? schema["items"] : OrderedJson(true);
  };
  size_t count = 0;
  for (const OrderedJson* schema : {&a, &b})
    if (schema->contains("prefixItems")) count = std::max(count, (*schema)["prefixItems"].size());
  for (size_t i = 0; i < count; ++i)
    result.push_back(SchemaReader::both(item(a, i), item(b, i)));
  return result;
}

bool is_lower_bound(const std::string& key) {
  return key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems" ||
         key == "minProperties";
}
bool is_upper_bound(const std::string& key) {
  return key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems" ||
         key == "maxProperties";
}

}  // namespace

// Nothing if no value is valid for both.
std::optional<OrderedJson> SchemaReader::merge(const OrderedJson& a, const OrderedJson& b,
                                               const std::string& path) const {
  spend(weight_of(a) + weight_of(b), path);
  OrderedJson result = a;
  const bool named = a.contains("properties") || b.contains("properties");
  const bool patterns = a.contains("patternProperties") || b.contains("patternProperties");
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) {
      result[key] = value;
    } else if (a[key] == value) {
      continue;
    } else if (key == "type") {
      continue;
    } else if (key == "enum") {
      OrderedJson common = OrderedJson::array();
      const ValueSet others(value);
      for (const OrderedJson& one : a[key])
        if (others.has(one)) common.push_back(one);
      if (common.empty()) return std::nullopt;
      result[key] = common;
    } else if (key == "required") {
      const ValueSet known(a[key]);
      for (const OrderedJson& name : value)
        if (!known.has(name)) result[key].push_back(name);
    } else if (is_lower_bound(key) || is_upper_bound(key)) {
      if (!a[key].is_number() || !value.is_number()) refuse(path + "/" + key, "is no number");
      const bool greater = value.get<double>() > a[key].get<double>();
      if (greater == is_lower_bound(key)) result[key] = value;
    } else if (key == "additionalProperties" || key == "items" || key == "unevaluatedProperties") {
      result[key] = both(a[key], value);
    } else if (key != "properties" && key != "prefixItems") {
      refuse(path + "/" + key, "cannot be enforced together with another " + key);
    }
  }
  if (a.contains("type") && b.contains("type")) {
    const unsigned kinds = kinds_of(a, where_ + path) & kinds_of(b, where_ + path);
    if (kinds == 0) return std::nullopt;
    result["type"] = names_of(kinds);
  }
  if (patterns && named && (a.contains("patternProperties") ? b : a).contains("properties"))
    refuse(path + "/patternProperties", "cannot be enforced together with other properties");
  if (named) result["properties"] = merge_properties(a, b);
  if (a.contains("prefixItems") || b.contains("prefixItems"))
    result["prefixItems"] = merge_prefixes(a, b);
  return result;
}

// Whether no value can be valid for both; false where that is not sure.
bool SchemaReader::disjoint(const FlatSchema& a, const FlatSchema& b, int depth) {
  const bool values_a = a.keywords.contains("enum"), values_b = b.keywords.contains("enum");
  for (const FlatSchema* one : {&a, &b})
    for (const char* key : {"enum", "required", "properties"})
      spend(1 + size_of(one->keywords, key), one->path);
  if (values_a && values_b) {
    const ValueSet others(b.keywords["enum"]);
    return std::none_of(a.keywords["enum"].begin(), a.keywords["enum"].end(),
                        [&](const OrderedJson& value) { return others.has(value); });
  }
  const auto kinds = [&](const FlatSchema& schema) {
    const unsigned declared = kinds_of(schema.keywords, where_ + schema.path);
    if (!schema.keywords.contains("enum")) return declared;
    unsigned found = 0;
    for (const OrderedJson& value : schema.keywords["enum"])
      found |= kind_of(value);
    if ((found & kFraction) != 0) found |= kInteger;  // 1.0 is an integer
    return declared & found;
  };
  const unsigned common = kinds(a) & kinds(b);
  if (common == 0) return true;
  return common == kObject && !values_a && !values_b && disjoint_objects(a, b, depth);
}

bool SchemaReader::disjoint_objects(const FlatSchema& a, const FlatSchema& b, int depth) {
  constexpr int kDeepest = 3;
  const Members of_a = members_of(a.keywords, "properties");
  const Members of_b = members_of(b.keywords, "properties");
  const auto needs_what_is_refused = [&](const FlatSchema& x, const FlatSchema& y,
                                         const Members& properties) {
    if (!x.keywords.contains("required") || additional(y.keywords) != false ||
        y.keywords.contains("patternProperties"))
      return false;
    return std::any_of(
        x.keywords["required"].begin(), x.keywords["required"].end(),
        [&](const OrderedJson& name) { return !properties.contains(name.get<std::string>()); });
  };
  if (needs_what_is_refused(a, b, of_b) || needs_what_is_refused(b, a, of_a)) return true;
  if (depth == kDeepest || !a.keywords.contains("required") || !b.keywords.contains("required"))
    return false;
  const ValueSet required_by_b(b.keywords["required"]);
  for (const OrderedJson& required : a.keywords["required"]) {
    const auto name = required.get<std::string>();
    const auto in_a = of_a.find(name), in_b = of_b.find(name);
    if (!required_by_b.has(required) || in_a == of_a.end() || in_b == of_b.end()) continue;
    const auto first = read(*in_a->second, a.path + "/properties/" + name);
    const auto second = read(*in_b->second, b.path + "/properties/" + name);
    const bool apart = std::all_of(first.begin(), first.end(), [&](const FlatSchema& x) {
      return std::all_of(second.begin(), second.end(),
                         [&](const FlatSchema& y) { return disjoint(x, y, depth + 1); });
    });
    if (apart) return true;
  }
  return false;
}

}  // namespace walsh::grammar
