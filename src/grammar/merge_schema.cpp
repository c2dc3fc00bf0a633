// Computes the conjunction of two flat schemas, and whether it allows anything.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "grammar/flat_schema.h"

namespace walsh::grammar {
namespace {

// Indexes the values of a list.
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

OrderedJson merge_properties(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson result = OrderedJson::object();
  const Members known = members_of(a, "properties"), others = members_of(b, "properties");
  if (a.contains("properties")) {
    for (const auto& [name, schema] : a["properties"].items()) {
      const auto same = others.find(name);
      append(result, name,
             same == others.end() ? schema : SchemaReader::both(schema, *same->second));
    }
  }
  if (b.contains("properties"))
    for (const auto& [name, schema] : b["properties"].items())
      if (!known.contains(name)) append(result, name, schema);
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

bool is_one_of(const std::string& key, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}
bool is_lower_bound(const std::string& key) {
  return is_one_of(key, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"});
}
bool is_upper_bound(const std::string& key) {
  return is_one_of(key, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"});
}

void append_new(OrderedJson& list, const OrderedJson& more) {
  const ValueSet known(list);
  OrderedJson added = OrderedJson::array();
  for (const OrderedJson& value : more)
    if (!known.has(value)) added.push_back(value);
  for (OrderedJson& value : added)
    list.push_back(std::move(value));
}

// Returns the values of `list` that are in `others` or, if `had` is false, those that are not.
OrderedJson chosen(const OrderedJson& list, const OrderedJson& others, bool had) {
  OrderedJson result = OrderedJson::array();
  const ValueSet known(others);
  for (const OrderedJson& one : list)
    if (known.has(one) == had) result.push_back(one);
  return result;
}

double number_of(const OrderedJson& keywords, const char* key, double otherwise) {
  const auto found = keywords.find(key);
  return found != keywords.end() && found->is_number() ? found->get<double>() : otherwise;
}

}  // namespace

// Returns the keywords that must hold for both to be satisfied, or nothing if no value satisfies
// both.
std::optional<OrderedJson> SchemaReader::merge(const OrderedJson& a, const OrderedJson& b,
                                               const std::string& path) const {
  spend(weight_of(a) + weight_of(b), path);
  OrderedJson result = a;
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) {
      result[key] = value;
    } else if (a[key] == value) {
      continue;
    } else if (key == "enum") {
      result[key] = chosen(a[key], value, true);
      if (result[key].empty()) return std::nullopt;
    } else if (is_lower_bound(key) || is_upper_bound(key)) {
      if (!a[key].is_number() || !value.is_number()) refuse(path + "/" + key, "is not a number");
      const bool greater = value.get<double>() > a[key].get<double>();
      if (greater == is_lower_bound(key)) result[key] = value;
    } else if (key == "items" || key == "propertyNames") {
      result[key] = both(a[key], value);
    } else if (!is_one_of(key, {"type", "properties", "prefixItems"})) {
      append_new(result[key], value);
    }
  }
  if (a.contains("type") && b.contains("type")) {
    const unsigned kinds = kinds_of(a, where_ + path) & kinds_of(b, where_ + path);
    if (kinds == 0) return std::nullopt;
    result["type"] = names_of(kinds);
  }
  if (result.contains("enum") && result.contains("-enum")) {
    result["enum"] = chosen(result["enum"], result["-enum"], false);
    result.erase("-enum");
    if (result["enum"].empty()) return std::nullopt;
  }
  if (a.contains("properties") || b.contains("properties"))
    result["properties"] = merge_properties(a, b);
  if (a.contains("prefixItems") || b.contains("prefixItems"))
    result["prefixItems"] = merge_prefixes(a, b);
  return result;
}

// Returns whether nothing can be valid. It returns false if that is not obvious.
bool SchemaReader::impossible(const OrderedJson& keywords, const std::string& path) const {
  if (!keywords.contains("type")) return false;
  const unsigned kinds = kinds_of(keywords, where_ + path);
  const auto crossed = [&](const char* least, const char* most) {
    return number_of(keywords, least, 0) > number_of(keywords, most, HUGE_VAL);
  };
  if (kinds == kString) return crossed("minLength", "maxLength");
  if (kinds == kArray) return crossed("minItems", "maxItems");
  if ((kinds & ~(kInteger | kFraction)) == 0) {
    const double least = number_of(keywords, "minimum", -HUGE_VAL);
    const double most = number_of(keywords, "maximum", HUGE_VAL);
    const double above = number_of(keywords, "exclusiveMinimum", -HUGE_VAL);
    const double below = number_of(keywords, "exclusiveMaximum", HUGE_VAL);
    return least > most || above >= most || least >= below || above >= below;
  }
  if (kinds != kObject) return false;
  if (crossed("minProperties", "maxProperties")) return true;
  if (!keywords.contains("required")) return false;
  const Members properties = members_of(keywords, "properties");
  const auto refused = [&](const OrderedJson& name) {
    const auto known = properties.find(name.get_ref<const std::string&>());
    return known != properties.end() && *known->second == false;
  };
  const OrderedJson& required = keywords["required"];
  if (std::any_of(required.begin(), required.end(), refused)) return true;
  return requires_refused(required, keywords);
}

// Returns whether a required name is refused, because only listed properties are allowed.
bool SchemaReader::requires_refused(const OrderedJson& required,
                                    const OrderedJson& keywords) const {
  if (!keywords.contains("others")) return false;
  for (const OrderedJson& one : keywords["others"]) {
    if (one["schema"] != false || !one["patterns"].empty()) continue;
    spend(one["names"].size() + required.size(), "");
    const ValueSet names(one["names"]);
    if (!std::all_of(required.begin(), required.end(),
                     [&](const OrderedJson& name) { return names.has(name); }))
      return true;
  }
  return false;
}

// Returns whether no value satisfies both. It returns false if that is not certain.
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
  const auto needs_what_is_refused = [&](const FlatSchema& x, const FlatSchema& y) {
    if (!x.keywords.contains("required") || !y.keywords.contains("others")) return false;
    OrderedJson exact = OrderedJson::array();
    for (const OrderedJson& one : y.keywords["others"])
      if (one["exact"] == true) exact.push_back(one);
    return requires_refused(x.keywords["required"], {{"others", exact}});
  };
  if (needs_what_is_refused(a, b) || needs_what_is_refused(b, a)) return true;
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
