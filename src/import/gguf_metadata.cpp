#include "import/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kArchitecture = "general.architecture";
constexpr int64_t kMaxLayers = 1024;

// This key changes what a model computes unless its family reads it, or its value is `value`.
struct Neutral {
  std::string_view key;
  double value;
};
constexpr auto kChanging = std::to_array<Neutral>({{".attention.causal", 1},
                                                   {".attention.clamp_kqv", 0},
                                                   {".attention.max_alibi_bias", 0},
                                                   {".attention.scale", 0},
                                                   {".attention.temperature_scale", 0},
                                                   {".attn_logit_softcapping", 0},
                                                   {".embedding_scale", 1},
                                                   {".expert_gating_func", 1},
                                                   {".expert_weights_scale", 1},
                                                   {".final_logit_softcapping", 0},
                                                   {".logit_scale", 1},
                                                   {".residual_scale", 1},
                                                   {".router_logit_softcapping", 0},
                                                   {".use_parallel_residual", 0}});

}  // namespace

GgufMetadata::GgufMetadata(const GgufContent& content, std::string path)
    : content_(content), path_(std::move(path)) {
  architecture_ = content.get(kArchitecture, path_).as_text(where(kArchitecture));
}

void GgufMetadata::add_file(const GgufContent& content, std::span<const std::byte> file) {
  files_.push_back({&content, file});
}

GgufMetadata::Found GgufMetadata::find_tensor(std::string_view name) const {
  for (const File& file : files_)
    if (const GgufTensor* tensor = file.content->find_tensor(name)) return {tensor, file.bytes};
  return {};
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
  asked_.emplace(key);
  return content_.find(full(key));
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  return found->as_int(where(key));
}

std::optional<double> GgufMetadata::number(std::string_view key, double least) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  const double number = found->as_double(where(key));
  if (!std::isfinite(number)) refuse(key, fmt::format("is {}, expected a finite number", number));
  if (number < least) refuse(key, fmt::format("is {}, expected at least {}", number, least));
  return number;
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

std::vector<int64_t> GgufMetadata::layer_integers(std::string_view key) const {
  const auto count = static_cast<size_t>(layers());
  const GgufValue* found = value(key);
  if (found == nullptr || !found->is_array()) return std::vector<int64_t>(count, require(key));
  std::vector<int64_t> values = found->as_ints(where(key));
  if (values.size() < count)
    refuse(key, fmt::format("has {} values for {} layers", values.size(), count));
  values.resize(count);
  return values;
}

int64_t GgufMetadata::require(std::string_view key) const {
  const auto found = uniform_integer(key);
  if (!found) throw Error(ErrorCode::bad_input, path_, "metadata key " + full(key) + " is missing");
  return *found;
}

std::optional<std::vector<bool>> GgufMetadata::booleans(std::string_view key,
                                                        int64_t layers) const {
  const GgufValue* found = value(key);
  if (found == nullptr || !found->is_array()) return std::nullopt;
  if (found->type() != GgufType::boolean || found->count() < static_cast<uint64_t>(layers)) {
    refuse(key, fmt::format("is {}, expected a boolean for each of {} layers", found->describe(),
                            layers));
  }
  std::vector<bool> values;
  for (const std::byte value : found->raw().first(static_cast<size_t>(layers)))
    values.push_back(value != std::byte{0});
  return values;
}

int64_t GgufMetadata::layers() const {
  const int64_t all = require(".block_count");
  if (all < 1 || all > kMaxLayers)
    refuse(".block_count", fmt::format("is {}, expected 1 to {}", all, kMaxLayers));
  const int64_t guessing = integer(".nextn_predict_layers").value_or(0);
  if (guessing < 0 || guessing >= all)
    refuse(".nextn_predict_layers", fmt::format("is {} of {} layers", guessing, all));
  return all - guessing;
}

void GgufMetadata::refuse_others() const {
  for (const Neutral& neutral : kChanging) {
    if (asked_.contains(neutral.key)) continue;
    const GgufValue* found = content_.find(full(neutral.key));
    if (found == nullptr) continue;
    const bool is_flag = !found->is_array() && found->type() == GgufType::boolean;
    const double is = is_flag ? (found->as_bool(where(neutral.key)) ? 1 : 0)
                              : found->as_double(where(neutral.key));
    // llama.cpp writes a factor of 0 for "none".
    if (is == neutral.value || (is == 0 && neutral.value == 1 && !is_flag)) continue;
    refuse(neutral.key, fmt::format("is {}, which is not supported for {}", is, architecture_));
  }
}

}  // namespace walsh
