// What dense decoders of transformers have in common, and the few traits in which they differ. A
// family sets traits; build_layers makes the description of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "arch/config.h"

namespace walsh {

// Names of a family's tensors. Those of a layer follow `layers` + index + "."; a weight is
// name + ".weight", its bias name + ".bias". A norm without a name does not exist. The defaults are
// those of LlamaForCausalLM, which most families took over.
struct TensorNames {
  std::string_view embedding = "model.embed_tokens.weight";
  std::string_view head = "lm_head.weight";
  std::string_view final_norm = "model.norm.weight";
  std::string_view layers = "model.layers.";
  std::string_view attention_norm = "input_layernorm";
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string_view o = "self_attn.o_proj";
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string_view after_attention_norm = "post_attention_layernorm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view after_mlp_norm = "post_feedforward_layernorm";
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  // Where a checkpoint has q, k and v, or gate and up, below each other in one tensor.
  std::string_view qkv = "", gate_up = "";
};

struct LayerTraits {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int rope = 0;  // -1: none
  int64_t window = 0;
  float attention_scale = 0;  // 0: 1 / sqrt(head_dim)
  float logit_cap = 0;
};

struct DecoderTraits {
  TensorNames names;
  std::vector<LayerTraits> layers;
  float norm_eps = 0;
  float gain_offset = 0;        // of every norm
  bool qk_norm = false;         // RMSNorm of queries and keys, over head_dim of every head
  bool qk_norm_of_all = false;  // or over all heads together
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool partial_rope = false;  // the family's code knows heads of which only a part is rotated
  bool paired_rope = false;   // neighbours in a head are rotated together (TensorPart::turned)
  bool norms_after = false;   // norms of what attention and MLP add to the stream as well
  GateFunction gate_function = GateFunction::silu;
  float branch_scale = 1;
};

// Fills in layers, embedding, head and the tensors to ignore. hidden, vocab and tied_head are set.
void build_layers(const DecoderTraits& traits, ModelConfig& config);

}  // namespace walsh
