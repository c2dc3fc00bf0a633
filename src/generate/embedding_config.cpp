#include "generate/embedding_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::array<std::pair<std::string_view, Reading>, 3> kPoolings = {
    {{"last", Reading::last}, {"mean", Reading::mean}, {"cls", Reading::cls}}};

}  // namespace

Reading parse_pooling(std::string_view name) {
  for (const auto& [text, pooling] : kPoolings)
    if (text == name) return pooling;
  throw Error(ErrorCode::usage, "pooling",
              "'" + std::string(name) + "' is unknown, expected last, mean or cls");
}

EmbeddingConfig read_embedding_config(std::string_view json, const std::string& where) {
  EmbeddingConfig config;
  if (json.empty()) return config;
  const Json read = parse_json(json, where);
  const auto bad = [&](const char* expected) {
    throw Error(ErrorCode::bad_input, where, std::string("expected ") + expected);
  };
  if (!read.is_object() || !read.contains("pooling") || !read["pooling"].is_string())
    bad("an object with 'pooling'");
  if (!read.contains("normalize") || !read["normalize"].is_boolean()) bad("a boolean 'normalize'");
  try {
    config.pooling = parse_pooling(read["pooling"].get_ref<const std::string&>());
  } catch (const Error& e) {
    throw Error(ErrorCode::bad_input, where, e.what());
  }
  config.normalize = read["normalize"].get<bool>();
  return config;
}

void to_unit_length(std::span<float> values) {
  double squares = 0;
  for (const float v : values)
    squares += double{v} * double{v};
  if (!(squares > 0)) return;
  const double factor = 1 / std::sqrt(squares);
  for (float& v : values)
    v = static_cast<float>(v * factor);
}

}  // namespace walsh
