#include "arch/family.h"

#include <fmt/format.h>

#include <array>

namespace walsh {

std::span<const Family> families() {
  static const auto table = std::to_array<Family>(
      {kArcee,     kCohere2,  kDeepseekV2,    kDeepseekV3, kErnie45,      kErnie45Moe, kExaone4,
       kGemma,     kGemma2,   kGemma3,        kGemma4,     kGlm,          kGlm4,       kGlm4Moe,
       kGptOss,    kGranite,  kGraniteHybrid, kGraniteMoe, kHunYuanDense, kLfm2,       kLfm2Moe,
       kLlama,     kLlama4,   kMiniMaxM2,     kMinistral,  kMinistral3,   kMistral,    kMixtral,
       kNemotronH, kOlmo2,    kOlmo3,         kOlmoe,      kPhi3,         kQwen2,      kQwen2Moe,
       kQwen3,     kQwen3Moe, kQwen3Vl,       kQwen3VlMoe, kQwen35,       kQwen35Moe,  kQwen3Next,
       kSeedOss,   kSmolLm3});
  return table;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : families()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

int64_t read_window(ConfigReader& reader, int64_t fallback) {
  const int64_t absent = reader.has("sliding_window") ? 0 : fallback;
  return reader.optional_integer("sliding_window", absent, 1, int64_t{1} << 31);
}

void read_layers_without_rope(ConfigReader& reader, DecoderTraits& traits) {
  constexpr int64_t kDefaultInterval = 4;  // transformers assumes this for an absent key.
  const auto interval = static_cast<size_t>(
      reader.optional_integer("no_rope_layer_interval", kDefaultInterval, 1, int64_t{1} << 31));
  const Json* list = reader.value("no_rope_layers");
  if (list != nullptr && list->is_array() && list->empty()) list = nullptr;
  if (list != nullptr && (!list->is_array() || list->size() < traits.layers.size()))
    reader.refuse("no_rope_layers", "expected one entry per layer");
  for (size_t i = 0; i < traits.layers.size(); ++i) {
    bool rope = (i + 1) % interval != 0;
    if (list != nullptr) {
      const Json& entry = (*list)[i];
      if (entry != 0 && entry != 1) reader.refuse("no_rope_layers", "expected 0 and 1 only");
      rope = entry == 1;
    }
    traits.layers[i].rope = rope ? 0 : -1;
  }
}

std::vector<std::string> kinds_of_layers(ConfigReader& reader, const char* key,
                                         const DecoderTraits& traits) {
  const Json* list = reader.value(key);
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() != traits.layers.size())
    reader.refuse(key, "expected one entry per layer");
  std::vector<std::string> kinds;
  for (const Json& kind : *list)
    kinds.push_back(kind.is_string() ? kind.get<std::string>() : "");
  return kinds;
}

std::vector<bool> layers_of_kind(ConfigReader& reader, std::string_view kind,
                                 const DecoderTraits& traits) {
  constexpr const char* kKey = "layer_types";
  std::vector<bool> are;
  for (const std::string& type : kinds_of_layers(reader, kKey, traits)) {
    are.push_back(type == kind);
    if (!are.back() && type != "full_attention")
      reader.refuse(kKey, fmt::format("expected '{}' or 'full_attention'", kind));
  }
  return are;
}

bool read_layer_types(ConfigReader& reader, int64_t window, DecoderTraits& traits) {
  const std::vector<bool> sliding = layers_of_kind(reader, "sliding_attention", traits);
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) continue;
    if (window == 0)
      reader.refuse("layer_types", "expected 'sliding_attention' with a window only");
    traits.layers[i].window = window;
  }
  return !sliding.empty();
}

void set_window_pattern(int64_t window, int64_t pattern, DecoderTraits& traits) {
  for (size_t i = 0; i < traits.layers.size(); ++i)
    traits.layers[i].window = static_cast<int64_t>(i + 1) % pattern != 0 ? window : 0;
}

std::vector<size_t> listed_layers(ConfigReader& reader, const char* key,
                                  const DecoderTraits& traits) {
  const Json* list = reader.value(key);
  if (list == nullptr) return {};
  if (!list->is_array()) reader.refuse(key, "expected a list of layers");
  std::vector<size_t> layers;
  for (const Json& layer : *list) {
    const bool known = layer.is_number_unsigned() && layer.get<uint64_t>() < traits.layers.size();
    if (!known) reader.refuse(key, "expected numbers of layers");
    layers.push_back(layer.get<size_t>());
  }
  return layers;
}

}  // namespace walsh
