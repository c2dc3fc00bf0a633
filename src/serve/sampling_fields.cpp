#include "serve/sampling_fields.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "generate/sampler.h"
#include "generate/sampling_options.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

using Option = SamplingOption;
constexpr size_t kMostTexts = 16;

template <typename T>
constexpr bool is_float = std::is_same_v<T, Option::Number<float>>;
template <typename T>
constexpr bool is_int = std::is_same_v<T, Option::Number<int>>;

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names)
    all += (all.empty() ? "" : ";") + name;
  return all;
}

using Biases = std::vector<std::pair<int32_t, float>>;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Holds the size and the tokenizer with which the tokens of biases are read and checked.
struct Vocabulary {
  int64_t size;
  const Tokenizer& tokenizer;

  // Returns the token ids that `text` means. It is an id itself or, as in llama.cpp, a text of
  // tokens.
  std::vector<int32_t> tokens(const std::string& text, const std::string& path) const {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    if (!digits) return tokenizer.encode(text, false);
    if (text.size() >= 10 || std::stoll(text) >= size)
      throw ApiError(400, fmt::format("'{}' is not a token id below {}", path, size), path);
    return {static_cast<int32_t>(std::stoll(text))};
  }
};

// Reads OpenAI's form, {"15043": 1.5}.
Biases read_bias_object(const Json& object, const std::string& path, const Option& option,
                        const Vocabulary& vocabulary) {
  Biases biases;
  const Fields entries(object, path);
  for (const auto& [id, value] : object.items()) {
    const auto tokens = vocabulary.tokens(id, entries.path(id));
    const auto bias = entries.number(id.c_str(), option.least, option.most);
    for (const int32_t token : tokens)
      if (bias) biases.emplace_back(token, static_cast<float>(*bias));
  }
  return biases;
}

// Reads llama.cpp's form, [[15043, 1.5], ["text", -2], [29871, false]]; with false the token is
// never chosen.
Biases read_bias_list(const Json& list, const std::string& path, const Option& option,
                      const Vocabulary& vocabulary) {
  Biases biases;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& pair = list[i];
    const std::string where = fmt::format("{}[{}]", path, i);
    const auto refuse = [&](const std::string& expected) {
      throw ApiError(400, fmt::format("'{}' is not {}", where, expected), where);
    };
    if (!pair.is_array() || pair.size() != 2 ||
        (!pair[0].is_number_integer() && !pair[0].is_string()))
      refuse("a list of a token id, or a text, and its bias");
    const bool text = pair[0].is_string();
    if (!text && (pair[0] < 0 || pair[0] >= vocabulary.size))
      refuse(fmt::format("for a token id below {}", vocabulary.size));
    const bool never = pair[1].is_boolean() && !pair[1].get<bool>();
    if (!never && (!pair[1].is_number() || !(pair[1].get<double>() >= option.least) ||
                   !(pair[1].get<double>() <= option.most)))
      refuse(fmt::format("a token id with a number from {} to {} or false", option.least,
                         option.most));
    const auto tokens = text ? vocabulary.tokenizer.encode(pair[0].get<std::string>(), false)
                             : std::vector<int32_t>{pair[0].get<int32_t>()};
    for (const int32_t token : tokens)
      biases.emplace_back(token, never ? kNever : pair[1].get<float>());
  }
  return biases;
}

Biases read_biases(const Fields& fields, const Option& option, const char* key,
                   const Vocabulary& vocabulary) {
  const Json& value = *fields.find(key);
  const auto read = value.is_array() ? read_bias_list : read_bias_object;
  return read(value, fields.path(key), option, vocabulary);
}

// Reads the field `key` of a row.
void read_field(const Fields& fields, const Option& option, const char* key,
                const Vocabulary& vocabulary, GenerationOptions& options) {
  if (fields.find(key) == nullptr) return;
  std::visit(
      [&](auto member) {
        using T = decltype(member);
        if constexpr (is_float<T>) {
          const auto value = fields.number(key, option.least, option.most);
          options.*member.wanted = static_cast<float>(*value);
        } else if constexpr (is_int<T>) {
          const auto value = fields.integer(key, static_cast<int64_t>(option.least),
                                            static_cast<int64_t>(option.most));
          options.*member.wanted = static_cast<int>(*value);
        } else if constexpr (std::is_same_v<T, Option::Seed>) {
          const int64_t seed = *fields.integer(key, INT64_MIN, INT64_MAX);
          options.*member = std::nullopt;  // a negative seed is drawn
          if (seed >= 0) options.*member = static_cast<uint64_t>(seed);
        } else if constexpr (std::is_same_v<T, Option::Flag>) {
          options.*member = *fields.flag(key);
        } else if constexpr (std::is_same_v<T, Option::Steps>) {
          const auto names = fields.texts(key, kSamplerSteps);
          if (!names.empty()) options.*member = joined(names);
        } else if constexpr (std::is_same_v<T, Option::Texts>) {
          options.*member = fields.texts(key, kMostTexts);
        } else {
          options.*member = read_biases(fields, option, key, vocabulary);
        }
      },
      option.member);
}

Json schema_of(const Option& option) {
  return std::visit(
      [&](auto member) -> Json {
        using T = decltype(member);
        if constexpr (is_float<T>)
          return {{"type", "number"}, {"minimum", option.least}, {"maximum", option.most}};
        if constexpr (is_int<T>)
          return {{"type", "integer"},
                  {"minimum", static_cast<int64_t>(option.least)},
                  {"maximum", static_cast<int64_t>(option.most)}};
        if constexpr (std::is_same_v<T, Option::Seed>)  // every client can read a string
          return {{"type", "integer"}, {"minimum", 0}, {"maximum", (int64_t{1} << 53) - 1}};
        if constexpr (std::is_same_v<T, Option::Flag>) return {{"type", "boolean"}};
        if constexpr (std::is_same_v<T, Option::Steps>)
          return {{"type", "array"},
                  {"maxItems", kSamplerSteps},
                  {"uniqueItems", true},
                  {"items", {{"enum", sampler_steps({})}}}};
        if constexpr (std::is_same_v<T, Option::Texts>)
          return {{"$ref", "#/components/schemas/Strings"}};
        const Json bias = {{"type", "number"}, {"minimum", option.least}, {"maximum", option.most}};
        return {{"type", "object"},
                {"propertyNames", {{"pattern", "^(0|[1-9][0-9]{0,2})$"}}},
                {"additionalProperties", bias}};
      },
      option.member);
}

}  // namespace

GenerationOptions read_sampling(const Fields& fields, GenerationOptions options, int64_t vocab,
                                const Tokenizer& tokenizer) {
  const Vocabulary vocabulary{vocab, tokenizer};
  for (const Option& option : sampling_options()) {
    for (const char* name : option.names())
      read_field(fields, option, name, vocabulary, options);
  }
  return options;
}

void copy_sampling(const OrderedJson& from, OrderedJson& to) {
  for (const Option& option : sampling_options())
    for (const char* name : option.names())
      if (const OrderedJson* value = find_value(from, name)) to[name] = *value;
}

Json sampling_properties() {
  Json properties = Json::object();
  for (const Option& option : sampling_options()) {
    Json schema = schema_of(option);
    if (!schema.contains("$ref")) schema["description"] = option.help;
    for (const char* name : option.names())
      properties[name] = schema;
  }
  return properties;
}

Json sampling_values(const SamplerOptions& options) {
  Json values = {{"samplers", sampler_steps(options)}};
  for (const Option& option : sampling_options())
    std::visit(
        [&](auto member) {
          using T = decltype(member);
          if constexpr (is_float<T> || is_int<T>) values[option.name] = options.*member.decided;
        },
        option.member);
  return values;
}

std::string sampling_inputs() {
  Json inputs = Json::array();
  for (const Option& option : sampling_options()) {
    Json schema = schema_of(option);
    const std::string type = schema.value("type", "");
    if (type != "number" && type != "integer") continue;
    inputs.push_back({option.name, schema["minimum"], schema["maximum"],
                      type == "integer" ? Json(1) : Json("any"), option.help});
  }
  std::string text = inputs.dump();
  // A script would end at the first "</".
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace walsh
