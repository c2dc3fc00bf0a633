#include "api/json_options.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <variant>

#include "generate/sampling_options.h"
#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

[[noreturn]] void refuse(const std::string& key, const Json& value, const char* expected) {
  throw Error(ErrorCode::usage, key, "is " + describe_json(value) + ", expected " + expected);
}

void read(const std::string& key, const Json& value, bool& field) {
  if (!value.is_boolean()) refuse(key, value, "a boolean");
  field = value.get<bool>();
}

void read(const std::string& key, const Json& value, std::string& field) {
  if (!value.is_string()) refuse(key, value, "a string");
  field = value.get<std::string>();
}

template <class Number>
requires std::is_integral_v<Number>
void read(const std::string& key, const Json& value, Number& field) {
  const bool fits =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<Number>::max())
          : value.is_number_integer() && std::is_signed_v<Number> &&
                value.get<int64_t>() >= static_cast<int64_t>(std::numeric_limits<Number>::min());
  if (!fits) refuse(key, value, "an integer in its range");
  field = value.get<Number>();
}

void read(const std::string& key, const Json& value, float& field) {
  if (!value.is_number() || !std::isfinite(value.get<float>())) refuse(key, value, "a number");
  field = value.get<float>();
}

template <class Value>
void read(const std::string& key, const Json& value, std::vector<Value>& field) {
  if (!value.is_array()) refuse(key, value, "a list");
  field.clear();
  for (const Json& item : value)
    read(key, item, field.emplace_back());
}

template <class Value>
void read(const std::string& key, const Json& value, std::optional<Value>& field) {
  if (value.is_null()) return field.reset();
  read(key, value, field.emplace());
}

// Reads a seed; -1 stands for one that is drawn.
void read(const std::string& key, const Json& value, std::optional<uint64_t>& field) {
  if (value.is_null() || (value.is_number_integer() && value == -1)) return field.reset();
  read(key, value, field.emplace());
}

// Reads biases of tokens, as {"TOKEN": BIAS}.
void read(const std::string& key, const Json& value,
          std::vector<std::pair<int32_t, float>>& field) {
  if (!value.is_object()) refuse(key, value, "an object");
  field.clear();
  for (const auto& [token, bias] : value.items()) {
    auto& [id, added] = field.emplace_back();
    const char* end = token.data() + token.size();
    if (const auto done = std::from_chars(token.data(), end, id);
        done.ec != std::errc() || done.ptr != end)
      throw Error(ErrorCode::usage, key, "'" + token + "' is no number of a token");
    read(key, bias, added);
  }
}

// Calls `visit(name, field)` for every field.
template <class Visit>
void visit_fields(GenerationOptions& o, const Visit& visit) {
  for (const SamplingOption& option : sampling_options())
    for (const char* name : option.names())
      std::visit(
          [&](const auto& member) {
            if constexpr (requires { member.wanted; }) {
              visit(name, o.*member.wanted);
            } else {
              visit(name, o.*member);
            }
          },
          option.member);
  visit("max_tokens", o.max_tokens);
  visit("lookup", o.lookup);
  visit("max_drafted", o.max_drafted);
  visit("stop", o.stop);
  visit("grammar", o.grammar);
  visit("json_schema", o.json_schema);
}

template <class Visit>
void visit_fields(EngineOptions& o, const Visit& visit) {
  visit("threads", o.threads);
  visit("context", o.context);
  visit("activations", o.activations);
  visit("device", o.device);
  visit("cache_keys", o.cache_keys);
  visit("cache_values", o.cache_values);
  visit("cache_window", o.cache_window);
  visit("device_bytes", o.device_bytes);
  visit("gpu_layers", o.gpu_layers);
  visit("cpu_experts", o.cpu_experts);
  visit("draft", o.draft);
}

Json parse_options(std::string_view text, const char* where) {
  if (text.empty()) return Json::object();
  Json json;
  try {
    json = parse_json(text, where);
  } catch (const Error& e) {
    throw Error(ErrorCode::usage, e.where(), e.reason());
  }
  if (!json.is_object()) refuse(where, json, "an object");
  return json;
}

// Sets the fields that `json` contains and removes them from it.
template <class Options>
void take_fields(Json& json, Options& options) {
  visit_fields(options, [&](const char* name, auto& field) {
    const auto found = json.find(name);
    if (found == json.end()) return;
    read(name, *found, field);
    json.erase(found);
  });
}

void refuse_rest(const Json& json) {
  if (!json.empty()) throw Error(ErrorCode::usage, json.begin().key(), "is no option");
}

}  // namespace

GenerationOptions parse_generation_options(std::string_view json) {
  Json object = parse_options(json, "options");
  // A schema may also be given as an object instead of a string.
  if (const auto schema = object.find("json_schema"); schema != object.end() && schema->is_object())
    *schema = parse_ordered_json(json, "options").at("json_schema").dump();
  GenerationOptions options;
  take_fields(object, options);
  refuse_rest(object);
  return options;
}

EngineOptions parse_engine_options(std::string_view json) {
  Json object = parse_options(json, "options");
  EngineOptions options;
  if (const auto type = object.find("compress"); type != object.end()) {
    read("compress", *type, options.compress.emplace().type);
    object.erase(type);
  }
  take_fields(object, options);
  refuse_rest(object);
  return options;
}

}  // namespace walsh
