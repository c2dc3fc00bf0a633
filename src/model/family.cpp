#include "model/family.h"

#include <array>

namespace walsh {

const TensorNames kLlamaNames = {
    .embedding = "model.embed_tokens.weight",
    .head = "lm_head.weight",
    .final_norm = "model.norm.weight",
    .layers = "model.layers.",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .o = "self_attn.o_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .mlp_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
};

std::span<const Family> families() {
  static const std::array<Family, 4> table = {kLlama, kMistral, kQwen2, kQwen3};
  return table;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : families()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace walsh
