// Qwen 3 with experts weighs them by the softmax of the router's logits, renormalized over the
// chosen experts if the config says so. Some layers may have a dense MLP instead.
#include "arch/family.h"

namespace walsh {
namespace {

void read_qwen3_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qk_norm = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  const bool enabled = reader.boolean_or("use_sliding_window", false);
  const int64_t window = read_window(reader, kDefaultWindow);
  reader.value("max_window_layers");  // Files have this key, but all layers have the window.
  for (LayerTraits& layer : traits.layers)
    layer.window = enabled ? window : 0;
  read_expert_counts(reader, "moe_intermediate_size", traits);
  read_dense_layers(reader, traits);
  traits.experts.routing.normalized = reader.boolean_or("norm_topk_prob", false);
}

}  // namespace

const Family kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe};

}  // namespace walsh
