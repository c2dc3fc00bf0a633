// EXAONE 4 has norms after both blocks and none in front, and norms of queries and keys per head.
// In models with windows, the layers without a window have no rope.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultPattern = 4;  // transformers assumes this for an absent key.

// Gives a window to the layers that `layer_types` lists or, without the list, to all but the last
// of every `sliding_window_pattern`. That key may be a text, which says the same as the list beside
// it.
void read_windows(ConfigReader& reader, int64_t window, DecoderTraits& traits) {
  constexpr const char* kPattern = "sliding_window_pattern";
  if (read_layer_types(reader, window, traits)) {
    reader.value(kPattern);
    return;
  }
  if (window == 0) reader.refuse("layer_types", "expected a list where sliding_window is null");
  set_window_pattern(window, reader.integer_or(kPattern, kDefaultPattern, 1, int64_t{1} << 31),
                     traits);
}

void read_exaone4(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.names.attention_norm = traits.names.mlp_norm = "";
  traits.norms_after = true;
  traits.qk_norm = true;
  const int64_t window = read_window(reader, kDefaultWindow);
  read_windows(reader, window, traits);
  if (window == 0) return;
  for (LayerTraits& layer : traits.layers)
    if (layer.window == 0) layer.rope = -1;
}

constexpr std::string_view kDefaults = R"({"num_key_value_heads": 32})";

}  // namespace

const Family kExaone4 = {"exaone4", "Exaone4ForCausalLM", read_exaone4, {}, kDefaults};

}  // namespace walsh
