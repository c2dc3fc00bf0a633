// GLM-4 has rope on a part of every head, which turns neighbours as pairs; gate and up are one
// tensor. Later models (glm4) also have norms after both blocks.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultHeadDim = 128;  // transformers assumes this for an absent key.

void read_glm(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.names.gate_up = "mlp.gate_up_proj";
  traits.partial_rope = traits.paired_rope = true;
  traits.qkv_bias = reader.boolean_or("attention_bias", true);
  if (reader.value("head_dim") != nullptr) return;
  for (LayerTraits& layer : traits.layers)
    layer.head_dim = kDefaultHeadDim;
}

void read_glm4(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_glm(reader, traits, config);
  traits.names.after_attention_norm = "post_self_attn_layernorm";
  traits.names.after_mlp_norm = "post_mlp_layernorm";
  traits.norms_after = true;
}

}  // namespace

const Family kGlm = {"glm", "GlmForCausalLM", read_glm, {.share = 0.5}};
const Family kGlm4 = {"glm4", "Glm4ForCausalLM", read_glm4, {.share = 0.5}};

}  // namespace walsh
