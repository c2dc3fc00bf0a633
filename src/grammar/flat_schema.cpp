#include "grammar/flat_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr int kMaxNesting = 64;        // of references and combinations
constexpr size_t kMaxWays = 256;       // of one schema
constexpr size_t kMaxSteps = 100'000;  // schemas that are read in all

// What would have to look at the whole value, or at parts of it that are written later.
constexpr std::array kRefused = {"not",
                                 "if",
                                 "then",
                                 "else",
                                 "dependentRequired",
                                 "dependentSchemas",
                                 "dependencies",
                                 "contains",
                                 "minContains",
                                 "maxContains",
                                 "unevaluatedItems",
                                 "$dynamicRef",
                                 "$recursiveRef"};
// What is enforced, besides $ref, allOf, anyOf, oneOf and nullable; anything else is a remark.
constexpr std::array kEnforced = {
    "type",          "enum",          "properties",        "required",
    "minProperties", "maxProperties", "patternProperties", "additionalProperties",
    "propertyNames", "items",         "prefixItems",       "unevaluatedProperties",
    "minItems",      "maxItems",      "minimum",           "maximum",
    "multipleOf",    "minLength",     "maxLength",         "exclusiveMinimum",
    "pattern",       "format",        "exclusiveMaximum"};

bool is_enforced(const std::string& key) {
  return std::find(kEnforced.begin(), kEnforced.end(), key) != kEnforced.end();
}

unsigned kind_named(const std::string& name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kFraction;
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
    names.push_back("number");
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
  if (value.is_number()) return kFraction;
  if (value.is_string()) return kString;
  return value.is_array() ? kArray : kObject;
}

namespace {

// The parts of a JSON pointer.
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
                  fmt::format("'{}' is no type", printable(name.dump(), 40)));
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

void SchemaReader::refuse(const std::string& path, const std::string& reason) const {
  throw Error(ErrorCode::bad_input, where_ + path, reason);
}

const OrderedJson& SchemaReader::follow(const std::string& reference,
                                        const std::string& path) const {
  if (!reference.starts_with('#') || (reference.size() > 1 && reference[1] != '/'))
    refuse(path + "/$ref", fmt::format("'{}' is not in this schema", printable(reference, 80)));
  const OrderedJson* at = &root_;
  for (const std::string& part : pointer_parts(std::string_view(reference).substr(1))) {
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

void SchemaReader::check_keywords(const OrderedJson& schema, const std::string& path) const {
  if (!schema.is_object()) refuse(path, "a schema is an object or a boolean");
  for (const char* key : kRefused)
    if (schema.contains(key)) refuse(path + "/" + key, "cannot be enforced");
  const auto unique = schema.find("uniqueItems");
  if (unique != schema.end() && *unique != false) {
    const auto most = schema.find("maxItems");
    if (most == schema.end() || !most->is_number() || most->get<double>() > 1)
      refuse(path + "/uniqueItems", "cannot be enforced");
  }
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
      refuse(path + "/" + key, "a list that is not empty is expected");
}

OrderedJson SchemaReader::both(const OrderedJson& a, const OrderedJson& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", {a, b}}};
}

std::vector<FlatSchema> SchemaReader::read(const OrderedJson& schema, const std::string& path) {
  return read(schema, path, 0);
}

std::vector<FlatSchema> SchemaReader::read(const OrderedJson& schema, const std::string& path,
                                           int depth) {
  if (++steps_ > kMaxSteps || depth > kMaxNesting) {
    throw Error(ErrorCode::limit, where_ + path,
                "references and combinations lead to too many schemas");
  }
  if (schema == false) return {};
  FlatSchema own;
  own.path = path;
  if (schema == true) return {own};
  spend(weight_of(schema), path);
  check_keywords(schema, path);
  for (const auto& [key, value] : schema.items())
    if (is_enforced(key)) own.keywords[key] = value;
  // Older drafts: a list of items is what prefixItems is today.
  if (const auto items = schema.find("items"); items != schema.end() && items->is_array()) {
    own.keywords["prefixItems"] = *items;
    own.keywords.erase("items");
    if (schema.contains("additionalItems")) own.keywords["items"] = schema["additionalItems"];
  }
  if (schema.contains("const")) {
    const OrderedJson only = OrderedJson::array({schema["const"]});
    own.keywords = merge(own.keywords, {{"enum", only}}, path).value_or(false);
    if (own.keywords == false) return {};
  }
  std::vector<FlatSchema> ways = {own};
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    if (!reference->is_string()) refuse(path + "/$ref", "a string is expected");
    const auto name = reference->get<std::string>();
    ways = multiply(ways, read(follow(name, path), name.substr(1), depth + 1));
  }
  if (const auto all = schema.find("allOf"); all != schema.end())
    for (size_t i = 0; i < all->size(); ++i)
      ways = multiply(ways, read((*all)[i], fmt::format("{}/allOf/{}", path, i), depth + 1));
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto list = schema.find(key);
    if (list == schema.end()) continue;
    const bool one = std::string_view(key) == "oneOf";
    ways = alternatives(ways, *list, path + "/" + key, one, depth);
  }
  if (schema.contains("nullable") && schema["nullable"] == true) {
    FlatSchema null;
    null.path = path;
    null.keywords["type"] = "null";
    ways.push_back(null);
  }
  return ways;
}

// What holds besides is part of every alternative: it tells more of them apart.
std::vector<FlatSchema> SchemaReader::alternatives(const std::vector<FlatSchema>& ways,
                                                   const OrderedJson& list, const std::string& path,
                                                   bool one, int depth) {
  std::vector<FlatSchema> all;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto more = multiply(ways, read(list[i], fmt::format("{}/{}", path, i), depth + 1));
    for (const FlatSchema& before : all)
      for (const FlatSchema& way : more)
        if (one && !disjoint(before, way, 0))
          refuse(path, "cannot be enforced: more than one of its schemas may hold");
    for (const FlatSchema& way : more)
      spend(weight_of(way.keywords), path);
    all.insert(all.end(), more.begin(), more.end());
    if (all.size() <= kMaxWays) continue;
    throw Error(ErrorCode::limit, where_ + path,
                fmt::format("more than {} alternatives", kMaxWays));
  }
  return all;
}

std::vector<FlatSchema> SchemaReader::multiply(const std::vector<FlatSchema>& a,
                                               const std::vector<FlatSchema>& b) const {
  std::vector<FlatSchema> result;
  for (const FlatSchema& x : a) {
    for (const FlatSchema& y : b) {
      const std::string& path = y.keywords.empty() ? x.path : y.path;
      auto keywords = merge(x.keywords, y.keywords, path);
      if (!keywords) continue;
      result.push_back({std::move(*keywords), path});
      if (result.size() <= kMaxWays) continue;
      throw Error(ErrorCode::limit, where_ + path,
                  fmt::format("more than {} combinations of alternatives", kMaxWays));
    }
  }
  return result;
}

}  // namespace walsh::grammar
