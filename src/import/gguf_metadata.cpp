#include "import/gguf_metadata.h"

#include <algorithm>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kArchitecture = "general.architecture";

}  // namespace

GgufMetadata::GgufMetadata(const GgufContent& content, std::string path)
    : content_(content), path_(std::move(path)) {
  architecture_ = content.get(kArchitecture, path_).as_text(where(kArchitecture));
}

std::string GgufMetadata::full(std::string_view key) const {
  return key.starts_with('.') ? architecture_ + std::string(key) : std::string(key);
}

std::string GgufMetadata::where(std::string_view key) const {
  return path_ + ": metadata key " + printable(full(key));
}

void GgufMetadata::refuse(std::string_view key, std::string reason) const {
  throw Error(ErrorCode::bad_input, where(key), std::move(reason));
}

const GgufValue* GgufMetadata::value(std::string_view key) const {
  return content_.find(full(key));
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  return found->as_int(where(key));
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  return found->as_double(where(key));
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  return found->as_bool(where(key));
}

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  const std::string& text = found->as_text(where(key));
  if (!is_utf8(text)) refuse(key, "is not UTF-8");
  return text;
}

std::optional<int64_t> GgufMetadata::uniform_integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr || !found->is_array()) return integer(key);
  const std::vector<int64_t> values = found->as_ints(where(key));
  if (values.empty()) refuse(key, "is an empty array");
  if (std::any_of(values.begin(), values.end(), [&](int64_t v) { return v != values[0]; }))
    refuse(key, "differs from layer to layer, which is not supported");
  return values[0];
}

int64_t GgufMetadata::require(std::string_view key) const {
  const auto found = uniform_integer(key);
  if (!found) throw Error(ErrorCode::bad_input, path_, "metadata key " + full(key) + " is missing");
  return *found;
}

}  // namespace walsh
