#include "grammar/flat_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/percent.h"
#include "grammar/schema_references.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr int kMaxNesting = 64;        // references and combinations may nest this deep
constexpr size_t kMaxWays = 256;       // one schema may have this many ways
constexpr size_t kMaxSteps = 100'000;  // this many schemas are read in total

// kFraction has this private name; types that clients send are printable.
constexpr const char* kFractionName =
    "\x01"
    "fraction";

unsigned kind_named(const std::string& name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kFraction;
  if (name == kFractionName) return kFraction;
  if (name == "string") return kString;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  return 0;
}

}  // namespace

OrderedJson names_of(unsigned kinds) {
  OrderedJson names = OrderedJson::array();
  for (const auto& [kind, name] :
       {std::pair{kNull, "null"}, std::pair{kBoolean, "boolean"}, std::pair{kString, "string"},
        std::pair{kArray, "array"}, std::pair{kObject, "object"}})
    if ((kinds & kind) != 0) names.push_back(name);
  if ((kinds & kFraction) != 0) {
    names.push_back((kinds & kInteger) != 0 ? "number" : kFractionName);
  } else if ((kinds & kInteger) != 0) {
    names.push_back("integer");
  }
  return names;
}

Members members_of(const OrderedJson& schema, const char* key) {
  Members members;
  const auto object = schema.find(key);
  if (object == schema.end() || !object->is_object()) return members;
  for (const auto& [name, value] : object->get_ref<const OrderedJson::object_t&>())
    members.emplace(name, &value);
  return members;
}

void append(OrderedJson& object, const std::string& name, OrderedJson value) {
  object.get_ref<OrderedJson::object_t&>().push_back({name, std::move(value)});
}

uint64_t weight_of(const OrderedJson& value) {
  uint64_t weight = 1;
  if (value.is_string()) weight += value.get_ref<const std::string&>().size() / 32;
  if (value.is_structured())
    for (const OrderedJson& part : value)
      weight += weight_of(part);
  return weight;
}

unsigned kind_of(const OrderedJson& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number_integer()) return kInteger;
  if (value.is_number()) {  // 1.0 counts as an integer
    const auto number = value.get<double>();
    return number == std::floor(number) ? kInteger : kFraction;
  }
  if (value.is_string()) return kString;
  return value.is_array() ? kArray : kObject;
}

namespace {

// Returns the parts of a JSON pointer.
std::vector<std::string> pointer_parts(std::string_view pointer) {
  std::vector<std::string> parts;
  while (pointer.starts_with('/')) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    std::string part;
    for (size_t i = 0; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1')) {
        part += pointer[++i] == '0' ? '~' : '/';
      } else {
        part += pointer[i];
      }
    }
    parts.push_back(std::move(part));
    pointer.remove_prefix(end);
  }
  return parts;
}

}  // namespace

unsigned kinds_of(const OrderedJson& schema, const std::string& where) {
  const auto type = schema.find("type");
  if (type == schema.end()) return kAnyKind;
  unsigned kinds = 0;
  const auto add = [&](const OrderedJson& name) {
    const unsigned kind = name.is_string() ? kind_named(name.get<std::string>()) : 0;
    if (kind == 0) {
      throw Error(ErrorCode::bad_input, where + "/type",
                  fmt::format("'{}' is not a type of JSON Schema", printable(name.dump(), 40)));
    }
    kinds |= kind;
  };
  if (type->is_array()) {
    for (const OrderedJson& name : *type)
      add(name);
  } else {
    add(*type);
  }
  return kinds;
}

SchemaReader::SchemaReader(const OrderedJson& root, std::string where, StepBudget& budget)
    : root_(root), where_(std::move(where)), budget_(budget), only_ref_(ignores_beside_ref(root)) {}

void SchemaReader::refuse(const std::string& path, const std::string& reason) const {
  throw Error(ErrorCode::bad_input, where_ + path, reason);
}

const OrderedJson& SchemaReader::follow(const std::string& reference,
                                        const std::string& path) const {
  if (reference.starts_with('?'))
    refuse(path + "/$ref", fmt::format("there is no '{}'", printable(reference.substr(1), 80)));
  if (!reference.starts_with('#') || (reference.size() > 1 && reference[1] != '/'))
    refuse(path + "/$ref", fmt::format("'{}' is not in this schema", printable(reference, 80)));
  const OrderedJson* at = &root_;
  for (const std::string& part : pointer_parts(percent_decoded(reference.substr(1)))) {
    const OrderedJson* next = nullptr;
    spend(1 + at->size() / 8, path);
    if (at->is_object()) {
      const auto place = at->find(part);
      if (place != at->end()) next = &*place;
    } else if (at->is_array() && !part.empty() && part.size() < 6 &&
               part.find_first_not_of("0123456789") == part.npos) {
      const size_t index = std::stoul(part);
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr)
      refuse(path + "/$ref", fmt::format("there is no '{}'", printable(reference, 80)));
    at = next;
  }
  return *at;
}

OrderedJson SchemaReader::both(const OrderedJson& a, const OrderedJson& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", {a, b}}};
}

OrderedJson SchemaReader::opposite(const OrderedJson& schema) {
  if (schema.is_boolean()) return !schema.get<bool>();
  if (schema.is_object() && schema.empty()) return false;
  if (schema.is_object() && schema.size() == 1 && schema.contains("not")) return schema["not"];
  return {{"not", schema}};
}

Ways SchemaReader::read(const OrderedJson& schema, const std::string& path) {
  return read(schema, path, 0);
}

Ways SchemaReader::read_reference(const OrderedJson& schema, const char* key,
                                  const std::string& path, int depth) {
  const OrderedJson& reference = schema[key];
  if (!reference.is_string()) refuse(path + "/" + key, "a string is expected");
  const auto name = reference.get<std::string>();
  if (std::string_view(key) != "$ref" && !name.starts_with('#'))
    refuse(path + "/" + key, "cannot be enforced");
  return read(follow(name, path), percent_decoded(name.substr(1)), depth + 1);
}

Ways SchemaReader::read(const OrderedJson& schema, const std::string& path, int depth) {
  if (++steps_ > kMaxSteps || depth > kMaxNesting) {
    throw Error(ErrorCode::limit, where_ + path,
                "references and combinations lead to too many schemas");
  }
  if (schema == false) return {};
  if (schema == true) return {FlatSchema{OrderedJson::object(), path}};
  spend(weight_of(schema), path);
  check_keywords(schema, path);
  if (only_ref_ && schema.contains("$ref")) return read_reference(schema, "$ref", path, depth);
  FlatSchema own = own_keywords(schema, path);
  Ways ways;
  if (own.keywords != false && !impossible(own.keywords, path)) ways.push_back(std::move(own));
  for (const char* key : {"$ref", "$dynamicRef", "$recursiveRef"})
    if (schema.contains(key)) ways = multiply(ways, read_reference(schema, key, path, depth));
  if (const auto all = schema.find("allOf"); all != schema.end())
    for (size_t i = 0; i < all->size(); ++i)
      ways = multiply(ways, read((*all)[i], fmt::format("{}/allOf/{}", path, i), depth + 1));
  if (schema.contains("anyOf")) ways = any_of(ways, schema["anyOf"], path + "/anyOf", depth);
  if (schema.contains("oneOf")) ways = one_of(ways, schema["oneOf"], path + "/oneOf", depth);
  if (schema.contains("not"))
    ways = multiply(ways, negate(read(schema["not"], path + "/not", depth + 1)));
  ways = conditions(std::move(ways), schema, path, depth);
  ways = dependencies(std::move(ways), schema, path, depth);
  add_unevaluated(ways, schema);
  if (schema.contains("nullable") && schema["nullable"] == true)
    ways.push_back({{{"type", "null"}}, path});
  return ways;
}

void SchemaReader::append_ways(Ways& all, Ways more, const std::string& path) const {
  for (FlatSchema& way : more) {
    spend(weight_of(way.keywords), path);
    all.push_back(std::move(way));
  }
  if (all.size() <= kMaxWays) return;
  throw Error(ErrorCode::limit, where_ + path, fmt::format("more than {} alternatives", kMaxWays));
}

Ways SchemaReader::any_of(const Ways& ways, const OrderedJson& list, const std::string& path,
                          int depth) {
  Ways all;
  for (size_t i = 0; i < list.size(); ++i)
    append_ways(all, multiply(ways, read(list[i], fmt::format("{}/{}", path, i), depth + 1)), path);
  return all;
}

// The keywords beside oneOf are merged into every alternative first, since they help to tell
// alternatives apart. Then each alternative excludes those with which it may overlap.
Ways SchemaReader::one_of(const Ways& ways, const OrderedJson& list, const std::string& path,
                          int depth) {
  std::vector<Ways> alternatives;
  for (size_t i = 0; i < list.size(); ++i)
    alternatives.push_back(multiply(ways, read(list[i], fmt::format("{}/{}", path, i), depth + 1)));
  Ways all;
  for (size_t i = 0; i < alternatives.size(); ++i) {
    for (const FlatSchema& way : alternatives[i]) {
      Ways rest = {way};
      for (size_t other = 0; other < alternatives.size() && !rest.empty(); ++other) {
        if (other == i) continue;
        Ways together;
        for (const FlatSchema& one : alternatives[other])
          if (!disjoint(way, one, 0)) together.push_back(one);
        if (!together.empty()) rest = multiply(rest, negate(together));
      }
      append_ways(all, std::move(rest), path);
    }
  }
  return all;
}

Ways SchemaReader::conditions(Ways ways, const OrderedJson& schema, const std::string& path,
                              int depth) {
  const bool has_then = schema.contains("then"), has_else = schema.contains("else");
  if (!schema.contains("if") || (!has_then && !has_else)) return ways;
  const Ways holds = read(schema["if"], path + "/if", depth + 1);
  Ways all = multiply(ways, holds);
  if (has_then) all = multiply(all, read(schema["then"], path + "/then", depth + 1));
  Ways otherwise = multiply(ways, negate(holds));
  if (has_else) otherwise = multiply(otherwise, read(schema["else"], path + "/else", depth + 1));
  append_ways(all, std::move(otherwise), path);
  return all;
}

// Adds to the ways, for each dependency, that it is met or that its property is absent.
Ways SchemaReader::dependencies(Ways ways, const OrderedJson& schema, const std::string& path,
                                int depth) {
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto list = schema.find(key);
    if (list == schema.end()) continue;
    const std::string place = path + "/" + key;
    if (!list->is_object()) refuse(place, "an object is expected");
    for (const auto& [name, needs] : list->items()) {
      FlatSchema without{{{"properties", {{name, false}}}}, place};
      FlatSchema with{{{"required", OrderedJson::array({name})}}, place};
      Ways met = {with};
      if (needs.is_array() || needs.is_string()) {
        OrderedJson names = needs;
        if (needs.is_string()) names = OrderedJson::array({needs});
        for (const OrderedJson& one : names)
          if (!one.is_string()) refuse(place, "a list of names is expected");
        met = multiply(met, {{{{"required", names}}, place}});
      } else {
        met = multiply(met, read(needs, place + "/" + name, depth + 1));
      }
      Ways all = multiply(ways, met);
      append_ways(all, multiply(ways, {without}), place);
      ways = std::move(all);
    }
  }
  return ways;
}

// unevaluated* applies to everything in the alternative. The result may refuse more than the schema
// does.
void SchemaReader::add_unevaluated(Ways& ways, const OrderedJson& schema) const {
  for (FlatSchema& way : ways) {
    Evaluated& known = way.evaluated;
    if (schema.contains("unevaluatedProperties") && !known.all_properties) {
      way.keywords["others"].push_back({{"names", known.names},
                                        {"patterns", known.patterns},
                                        {"schema", schema["unevaluatedProperties"]},
                                        {"exact", false}});
      known.all_properties = true;
    }
    if (schema.contains("unevaluatedItems") && !known.all_items) {
      OrderedJson prefix = OrderedJson::array();
      for (size_t i = 0; i < known.items; ++i)
        prefix.push_back(true);
      OrderedJson rest = {{"items", schema["unevaluatedItems"]}, {"unevaluatedItems", true}};
      if (!prefix.empty()) rest["prefixItems"] = prefix;
      way.keywords = *merge(way.keywords, rest, way.path);
      known.all_items = true;
    }
  }
}

Ways SchemaReader::multiply(const Ways& a, const Ways& b) const {
  Ways result;
  for (const FlatSchema& x : a) {
    for (const FlatSchema& y : b) {
      const std::string& path = y.keywords.empty() ? x.path : y.path;
      auto keywords = merge(x.keywords, y.keywords, path);
      if (!keywords || impossible(*keywords, path)) continue;
      result.push_back({std::move(*keywords), path, x.evaluated});
      result.back().evaluated.add(y.evaluated);
      if (result.size() <= kMaxWays) continue;
      throw Error(ErrorCode::limit, where_ + path,
                  fmt::format("more than {} combinations of alternatives", kMaxWays));
    }
  }
  return result;
}

}  // namespace walsh::grammar
