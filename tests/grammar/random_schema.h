// Makes random satisfiable JSON schemas, and has an independent validator for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "base/random.h"
#include "io/json.h"
#include "text/utf8.h"

namespace walsh::test {

class RandomSchema {
 public:
  explicit RandomSchema(Random& random) : random_(random) {}

  OrderedJson make(int depth) {
    switch (below(depth > 0 ? 12 : 8)) {
      case 0:
        return {{"type", "null"}};
      case 1:
        return {{"type", "boolean"}};
      case 2:
        return string();
      case 3:
        return number(true);
      case 4:
        return number(false);
      case 5:
        return {{"enum", {"red", 7, nullptr, "a\"b", OrderedJson::array({1, "x"})}}};
      case 6:
        return {{"const", below(2) == 0 ? OrderedJson("fixed") : OrderedJson(-12.5)}};
      case 7:
        return {{"type", "string"}, {"pattern", "^[A-F]{1,4}(-[0-9]+)?$"}, {"maxLength", 9}};
      case 8:
        return array(depth);
      case 9: {
        OrderedJson any = OrderedJson::array();
        for (uint64_t i = 0; i <= below(3); ++i)
          any.push_back(make(depth - 1));
        return {{"anyOf", any}};
      }
      default:
        return object(depth);
    }
  }

 private:
  uint64_t below(uint64_t limit) { return random_.below(limit); }

  OrderedJson string() {
    OrderedJson schema = {{"type", "string"}};
    const uint64_t least = below(4);
    if (below(2) == 0) schema["minLength"] = least;
    schema["maxLength"] = least + below(12);
    return schema;
  }
  OrderedJson number(bool integer) {
    OrderedJson schema = {{"type", integer ? "integer" : "number"}};
    const double scale = integer ? 1 : 0.25;
    const double least = scale * (static_cast<double>(below(4000)) - 2000);
    if (below(2) == 0) schema[below(2) == 0 ? "minimum" : "exclusiveMinimum"] = least;
    if (below(2) == 0)
      schema[below(2) == 0 ? "maximum" : "exclusiveMaximum"] =
          least + 10 + scale * static_cast<double>(below(1000));
    if (integer && below(4) == 0) schema["multipleOf"] = 1 + below(9);
    return schema;
  }
  OrderedJson array(int depth) {
    OrderedJson schema = {{"type", "array"}};
    if (below(3) == 0) {
      schema["prefixItems"] = {make(depth - 1), make(depth - 1)};
      schema["items"] = false;
      return schema;
    }
    const uint64_t least = below(3);
    schema["items"] = make(depth - 1);
    schema["minItems"] = least;
    schema["maxItems"] = least + below(3);
    return schema;
  }
  OrderedJson object(int depth) {
    OrderedJson schema = {{"type", "object"}, {"properties", OrderedJson::object()}};
    schema["required"] = OrderedJson::array();
    for (const char* name : {"id", "name", "a\"b", "value", "x y"}) {
      if (below(2) == 0) continue;
      schema["properties"][name] = make(depth - 1);
      if (below(2) == 0) schema["required"].push_back(name);
    }
    if (below(2) == 0) schema["additionalProperties"] = false;
    if (below(6) == 0) {
      schema["additionalProperties"] = {{"type", "integer"}};
      schema["maxProperties"] = schema["required"].size() + 1;
    }
    return schema;
  }

  Random& random_;
};

// Knows the keywords above; `value` is the whole of a text that was parsed.
inline bool is_valid(const OrderedJson& schema, const OrderedJson& value) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto has = [&](const char* key) { return schema.contains(key); };
  const auto limit = [&](const char* key) { return schema[key].get<double>(); };
  if (has("anyOf"))
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                       [&](const OrderedJson& one) { return is_valid(one, value); });
  if (has("const")) return value == schema["const"];
  if (has("enum"))
    return std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end();
  const auto type = schema["type"].get<std::string>();
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") {
    if (!value.is_string()) return false;
    const auto text = value.get<std::string>();
    double letters = 0;
    for (const char c : text)
      letters += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    if (has("minLength") && letters < limit("minLength")) return false;
    if (has("maxLength") && letters > limit("maxLength")) return false;
    if (!has("pattern")) return true;  // ^[A-F]{1,4}(-[0-9]+)?$
    const size_t dash = std::min(text.find('-'), text.size());
    const std::string head = text.substr(0, dash), tail = text.substr(dash);
    return !head.empty() && head.size() <= 4 && head.find_first_not_of("ABCDEF") == head.npos &&
           (tail.empty() ||
            (tail.size() > 1 && tail.find_first_not_of("0123456789", 1) == tail.npos));
  }
  if (type == "integer" || type == "number") {
    if (!value.is_number() || (type == "integer" && !value.is_number_integer())) return false;
    const auto number = value.get<double>();
    return !((has("minimum") && number < limit("minimum")) ||
             (has("exclusiveMinimum") && number <= limit("exclusiveMinimum")) ||
             (has("maximum") && number > limit("maximum")) ||
             (has("exclusiveMaximum") && number >= limit("exclusiveMaximum")) ||
             (has("multipleOf") && std::fmod(number, limit("multipleOf")) != 0));
  }
  const auto size = static_cast<double>(value.size());
  if (type == "array") {
    if (!value.is_array()) return false;
    if (has("minItems") && size < limit("minItems")) return false;
    if (has("maxItems") && size > limit("maxItems")) return false;
    for (size_t i = 0; i < value.size(); ++i) {
      const bool first = has("prefixItems") && i < schema["prefixItems"].size();
      if (!is_valid(first ? schema["prefixItems"][i] : schema["items"], value[i])) return false;
    }
    return true;
  }
  if (!value.is_object() || (has("maxProperties") && size > limit("maxProperties"))) return false;
  for (const OrderedJson& name : schema["required"])
    if (!value.contains(name.get<std::string>())) return false;
  for (const auto& [name, one] : value.items()) {
    const OrderedJson& properties = schema["properties"];
    const OrderedJson other =
        has("additionalProperties") ? schema["additionalProperties"] : OrderedJson(true);
    if (!is_valid(properties.contains(name) ? properties[name] : other, one)) return false;
  }
  return true;
}

}  // namespace walsh::test
