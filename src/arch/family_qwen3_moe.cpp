// Qwen 3 with experts weighs them by the softmax of the router's logits, renormalized over the
// chosen experts if the config says so. Some layers may have a dense MLP instead. The text part of
// Qwen3-VL has no windows and always renormalizes. Published files have the matrices of its experts
// transposed, those that transformers 5 writes have not.
#include "arch/family.h"

namespace walsh {
namespace {

void read_experts(ConfigReader& reader, DecoderTraits& traits) {
  traits.qk_norm = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  read_expert_counts(reader, "moe_intermediate_size", traits);
  read_dense_layers(reader, traits);
}

void read_qwen3_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  const bool enabled = reader.boolean_or("use_sliding_window", false);
  const int64_t window = read_window(reader, kDefaultWindow);
  reader.value("max_window_layers");  // Files have this key, but all layers have the window.
  for (LayerTraits& layer : traits.layers)
    layer.window = enabled ? window : 0;
  read_experts(reader, traits);
  traits.experts.routing.normalized = reader.boolean_or("norm_topk_prob", false);
}

void read_qwen3_vl_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  read_experts(reader, traits);
  reader.only("norm_topk_prob", true);
  traits.experts.routing.normalized = true;
  traits.experts.order = ExpertOrder::any;
}

}  // namespace

const Family kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe};
const Family kQwen3VlMoe = {"qwen3_vl_moe_text",
                            "Qwen3VLMoeTextModel",
                            read_qwen3_vl_moe,
                            {.theta = 5e5, .sections = {24, 20, 20}}};

}  // namespace walsh
