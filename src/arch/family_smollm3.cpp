// SmolLM3 is Llama without rope in every fourth layer.
#include "arch/family.h"

namespace walsh {
namespace {

void read_smollm3(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  config.tied_head = reader.boolean_or("tie_word_embeddings", true);
  read_layers_without_rope(reader, traits);
  int64_t window = read_window(reader, 0);
  if (!reader.boolean_or("use_sliding_window", false)) window = 0;
  if (read_layer_types(reader, window, traits)) return;
  for (LayerTraits& layer : traits.layers)
    if (layer.rope < 0) layer.window = window;
}

}  // namespace

const Family kSmolLm3 = {"smollm3", "SmolLM3ForCausalLM", read_smollm3, {.theta = 2e6}};

}  // namespace walsh
