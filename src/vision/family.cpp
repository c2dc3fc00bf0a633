#include "vision/family.h"

#include <array>

#include "walsh/error.h"

namespace walsh::vision {
namespace {

constexpr auto kFamilies = std::to_array<VisionFamily>({
    {"gemma3", read_gemma3},
    {"mistral3", read_mistral3},
    {"qwen3_5", read_qwen35},
    {"qwen3_5_moe", read_qwen35},
    {"qwen3_vl", read_qwen3_vl},
    {"qwen3_vl_moe", read_qwen3_vl},
});

}  // namespace

const VisionFamily* find_vision_family(std::string_view model_type) {
  for (const VisionFamily& family : kFamilies)
    if (family.model_type == model_type) return &family;
  return nullptr;
}

Activation parse_activation(const std::string& name, const std::string& where) {
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  throw Error(ErrorCode::bad_input, where, "the activation '" + name + "' is not supported");
}

TowerReader::TowerReader(const VisionFiles& files)
    : object_(get_object(files.config, "vision_config", files.where)),
      where_(files.where + ": vision_config") {}

int64_t TowerReader::size(const char* key, int64_t fallback, int64_t most) const {
  return find_int(object_, key, where_, 1, most).value_or(fallback);
}

double TowerReader::number(const char* key, double fallback) const {
  return find_number(object_, key, where_, 0, 1e12).value_or(fallback);
}

Activation TowerReader::activation(const char* key, const char* fallback) const {
  return parse_activation(find_string(object_, key, where_).value_or(fallback),
                          where_ + ": " + key);
}

std::vector<int64_t> TowerReader::layers(const char* key, const std::vector<int64_t>& fallback,
                                         int64_t count) const {
  const Json* list = find_array(object_, key, where_);
  if (list == nullptr) return fallback;
  std::vector<int64_t> layers;
  for (const Json& layer : *list) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= static_cast<uint64_t>(count) ||
        (!layers.empty() && layer.get<int64_t>() <= layers.back()))
      refuse(key, "expected ascending numbers of layers");
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

double TowerReader::rope_theta(double fallback) const {
  const Json* rope = find_object(object_, "rope_parameters", where_);
  const Json& object = rope != nullptr ? *rope : object_;
  return find_number(object, "rope_theta", where_, 1, 1e12).value_or(fallback);
}

void TowerReader::read_sizes(TowerDesc& tower, int64_t width, int64_t hidden, int64_t layers,
                             int64_t heads, int64_t patch) const {
  tower.width = size("hidden_size", width);
  tower.hidden = size("intermediate_size", hidden);
  tower.layers = size("num_hidden_layers", layers, 1000);
  tower.heads = size("num_attention_heads", heads, 1000);
  tower.patch = size("patch_size", patch, 1000);
  if (size("num_channels", 3) != 3) refuse("num_channels", "expected 3");
  if (tower.width % tower.heads != 0)
    refuse("num_attention_heads", "expected a divisor of hidden_size");
  if (tower.rope_theta != 0 && tower.head_dim() % 4 != 0)
    refuse("num_attention_heads", "expected heads of a multiple of 4 values");
}

void TowerReader::refuse(const std::string& key, const std::string& reason) const {
  throw Error(ErrorCode::bad_input, where_ + ": " + key, reason);
}

int32_t token_of(const VisionFiles& files, const char* key, int64_t fallback) {
  return static_cast<int32_t>(
      find_int(files.config, key, files.where, 0, INT32_MAX).value_or(fallback));
}

int32_t image_token(const VisionFiles& files, std::string_view text) {
  if (const auto id = files.tokenizer.token_id(text)) return *id;
  throw Error(ErrorCode::bad_input, files.where,
              "the tokenizer lacks the token '" + std::string(text) + "', which images need");
}

}  // namespace walsh::vision
