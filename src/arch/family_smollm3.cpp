// SmolLM3: Llama in which every fourth layer goes without rope.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultInterval = 4;  // transformers' default for an absent key

// The layers that `no_rope_layers` marks with 0, or every `no_rope_layer_interval`-th.
void read_ropes_of_layers(ConfigReader& reader, DecoderTraits& traits) {
  const auto interval = static_cast<size_t>(
      reader.integer_or("no_rope_layer_interval", kDefaultInterval, 1, int64_t{1} << 31));
  const Json* list = reader.value("no_rope_layers");
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

void read(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  config.tied_head = reader.boolean_or("tie_word_embeddings", true);
  read_ropes_of_layers(reader, traits);
  int64_t window = read_window(reader, 0);
  if (!reader.boolean_or("use_sliding_window", false)) window = 0;
  if (read_layer_types(reader, window, traits)) return;
  for (LayerTraits& layer : traits.layers)
    if (layer.rope < 0) layer.window = window;
}

}  // namespace

const Family kSmolLm3 = {"smollm3", "SmolLM3ForCausalLM", read, {.theta = 2e6}};

}  // namespace walsh
