#include "arch/family.h"

#include <array>

namespace walsh {

std::span<const Family> families() {
  static const auto table = std::to_array<Family>(
      {kArcee,  kCohere2,   kDeepseekV2, kDeepseekV3,   kErnie45,  kErnie45Moe, kExaone4,
       kGemma,  kGemma2,    kGemma3,     kGemma4,       kGlm,      kGlm4,       kGlm4Moe,
       kGptOss, kGranite,   kGraniteMoe, kHunYuanDense, kLfm2,     kLfm2Moe,    kLlama,
       kLlama4, kMiniMaxM2, kMinistral,  kMinistral3,   kMistral,  kMixtral,    kOlmo2,
       kOlmo3,  kOlmoe,     kPhi3,       kQwen2,        kQwen2Moe, kQwen3,      kQwen3Moe,
       kQwen35, kQwen35Moe, kQwen3Next,  kSeedOss,      kSmolLm3});
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

bool read_layer_types(ConfigReader& reader, int64_t window, DecoderTraits& traits) {
  const Json* types = reader.value("layer_types");
  if (types == nullptr) return false;
  if (!types->is_array() || types->size() != traits.layers.size())
    reader.refuse("layer_types", "expected one entry per layer");
  for (size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] == "sliding_attention" && window != 0) {
      traits.layers[i].window = window;
    } else if ((*types)[i] != "full_attention") {
      reader.refuse("layer_types",
                    "expected 'full_attention', or 'sliding_attention' with a sliding window");
    }
  }
  return true;
}

}  // namespace walsh
