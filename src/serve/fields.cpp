#include "serve/fields.h"

#include <fmt/format.h>

#include "io/wide_integers.h"

namespace walsh {

namespace {

// Stop strings and sequence breakers have at most this many bytes: texts are searched for them
// after every token.
constexpr size_t kMostTextBytes = 1024;

}  // namespace

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string what = path_.empty() ? "the request" : "'" + path_ + "'";
  throw ApiError(400, fmt::format("{} must be an object, found {}", what, describe_json(object)),
                 path_);
}

std::string Fields::path(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void Fields::refuse(const std::string& key, const std::string& expected) const {
  const auto it = object_.find(key);
  const std::string found = it == object_.end() ? "nothing" : describe_json(*it);
  throw ApiError(400, fmt::format("'{}' must be {}, found {}", path(key), expected, found),
                 path(key));
}

const Json* Fields::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<double> Fields::number(const char* key, double least, double most) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto refused = [&] { refuse(key, fmt::format("a number from {} to {}", least, most)); };
  if (!value->is_number()) refused();
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) refused();
  return number;
}

std::optional<int64_t> Fields::integer(const char* key, int64_t least, int64_t most) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto refused = [&] { refuse(key, fmt::format("an integer from {} to {}", least, most)); };
  if (!value->is_number_integer()) refused();
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) refused();
  const auto number = value->get<int64_t>();
  if (number < least || number > most) refused();
  return number;
}

std::optional<bool> Fields::flag(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "a boolean");
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(const char* key, size_t most) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const std::string expected = fmt::format(
      "a string or a list of at most {} strings, each of at most {} bytes", most, kMostTextBytes);
  std::vector<std::string> texts;
  const auto add = [&](const Json& text) {
    if (!text.is_string() || text.get_ref<const std::string&>().size() > kMostTextBytes)
      refuse(key, expected);
    texts.push_back(text.get<std::string>());
  };
  if (value->is_string()) {
    add(*value);
    return texts;
  }
  if (!value->is_array() || value->size() > most) refuse(key, expected);
  for (const Json& item : *value)
    add(item);
  return texts;
}

namespace {

template <typename Parse>
auto parsed(const Parse& parse) {
  int64_t values = kMostBodyValues;
  try {
    return parse(JsonLimits{.values = &values});
  } catch (const Error& e) {
    if (values >= 0) throw ApiError(400, e.what());
    throw ApiError(400, fmt::format("the request's body has more than {} values", kMostBodyValues));
  }
}

}  // namespace

Json parse_body(const std::string& body) {
  return parsed(
      [&](const JsonLimits& limits) { return parse_json(body, "the request's body", limits); });
}

OrderedJson parse_ordered_body(const std::string& body) {
  OrderedJson json = parsed([&](const JsonLimits& limits) {
    return parse_exact_json(body, "the request's body", limits);
  });
  if (!json.is_object()) Fields(Json(json), "");  // this throws a message about its type
  // The arguments of tool calls (in messages and input) are shown to the model unchanged.
  for (auto& [key, value] : json.get_ref<OrderedJson::object_t&>())
    if (key != "messages" && key != "input") round_wide_integers(value);
  return json;
}

}  // namespace walsh
