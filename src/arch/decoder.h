// Says what the decoders of transformers have in common, and in which traits they differ. A family
// sets traits; build_layers turns them into the description.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config.h"

namespace walsh {

// These are the names of a family's tensors. Those of a layer come behind `layers` + index + "."; a
// weight is called name + ".weight", its bias name + ".bias". A norm without a name does not exist.
// The defaults are the names of LlamaForCausalLM, which most families use.
struct TensorNames {
  std::string_view embedding = "model.embed_tokens.weight";
  std::string_view head = "lm_head.weight";
  std::string_view final_norm = "model.norm.weight";
  std::string_view layers = "model.layers.";
  std::string_view attention_norm = "input_layernorm";
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string_view o = "self_attn.o_proj";
  std::string_view sinks = "self_attn.sinks";  // without ".weight"
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  // For latent attention, a checkpoint has `latent` above `shared_key` in one tensor, kv_down, and
  // of head after head the rows of `key_up` and of `value_up` in another, kv_up.
  std::string_view query_down = "self_attn.q_a_proj", query_up = "self_attn.q_b_proj";
  std::string_view query_down_norm = "self_attn.q_a_layernorm";
  std::string_view kv_down = "self_attn.kv_a_proj_with_mqa";
  std::string_view latent = "self_attn.kv_a_proj", shared_key = "self_attn.k_rope_proj";
  std::string_view kv_up = "self_attn.kv_b_proj";
  std::string_view key_up = "self_attn.k_b_proj", value_up = "self_attn.v_b_proj";
  std::string_view kv_down_norm = "self_attn.kv_a_layernorm";
  std::string_view after_attention_norm = "post_attention_layernorm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view after_mlp_norm = "post_feedforward_layernorm";
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string_view delta_qkv = "linear_attn.in_proj_qkv", delta_z = "linear_attn.in_proj_z";
  std::string_view delta_b = "linear_attn.in_proj_b", delta_a = "linear_attn.in_proj_a";
  std::string_view delta_o = "linear_attn.out_proj", delta_norm = "linear_attn.norm";
  std::string_view convolution = "linear_attn.conv1d";
  // These are set if a checkpoint has qkv and z in one tensor, key head after key head, and b and a
  // in another.
  std::string_view delta_qkvz = "", delta_ba = "";
  // These are for short convolutions. One tensor has the rows of the gate in front, of the gate
  // behind, and of the channels.
  std::string_view short_in = "conv.in_proj", short_o = "conv.out_proj";
  std::string_view short_taps = "conv.conv";
  std::string_view delta_rate = "linear_attn.A_log", delta_bias = "linear_attn.dt_bias";
  // These are set if a checkpoint has q, k and v in one tensor, or gate and up.
  std::string_view qkv = "", gate_up = "";
  // These are for layers with experts. A matrix of expert e is called `experts` + e + "." + its
  // name.
  std::string_view router = "mlp.gate", shared_gate = "mlp.shared_expert_gate";
  std::string_view shared = "mlp.shared_expert.";  // before gate_proj, up_proj and down_proj
  std::string_view experts = "mlp.experts.";
  // If they have norms of their own, these are in front of the router (its name is used without
  // ".weight") and of the experts, behind `mlp`, and behind the experts.
  std::string_view router_norm = "", experts_norm = "", after_shared_norm = "";
  std::string_view after_experts_norm = "";
  std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  // A checkpoint that stores all experts of a layer in one tensor per kind has these, without
  // ".weight".
  std::string_view all_gate_up = "mlp.experts.gate_up_proj", all_down = "mlp.experts.down_proj";
  std::string_view stream_factor = "";  // without ".weight"
  // The embeddings of layers have these names. The first three are of the model.
  std::string_view layer_embedding = "model.embed_tokens_per_layer.weight";
  std::string_view layer_projection = "model.per_layer_model_projection";
  std::string_view layer_projection_norm = "model.per_layer_projection_norm.weight";
  std::string_view layer_gate = "per_layer_input_gate", layer_out = "per_layer_projection";
  std::string_view after_layer_norm = "post_per_layer_input_norm";
};

// A checkpoint that stores all experts of a layer in one tensor has one of these orders.
enum class ExpertOrder : uint8_t {
  rows,        // gate_up [experts, 2 width, hidden], gates first; down [experts, hidden, width]
  columns,     // gate_up [experts, hidden, 2 width], gates first; down [experts, width, hidden]
  interleaved  // like columns, but gate_up alternates gate, up, gate, up, ...
};

// The experts are the same in every layer that has some.
struct ExpertTraits {
  int64_t count = 0, chosen = 0, width = 0;
  RoutingDesc routing;           // without the name of its bias
  std::string_view choice_bias;  // its name behind the layer's prefix; empty: there is none
  std::string_view factors;      // likewise the name of the factors of weights
  bool router_bias = false, bias = false;
  bool gated_shared = false;  // a matrix gates the shared expert
  ExpertOrder order = ExpertOrder::rows;
};

// A scale of 0 stands for 1 / sqrt(head_dim).
struct LayerTraits : AttentionOptions {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int rope = 0;                    // -1: no rope
  float unit_eps = 0, growth = 0;  // see AttentionDesc
  int64_t growth_step = 1;
  float value_eps = 0;
  int cache_of = -1;
  bool values_are_keys = false;  // there is no matrix v
  bool experts = false;          // in place of the MLP of width `intermediate`
  int64_t shared = 0;      // width of the expert that every token gets besides its own; 0: none
  bool recurrent = false;  // a delta net or a short convolution in place of attention

  LayerTraits() { scale = 0; }
};

// These are the same in every layer with latent attention; see LatentDesc.
struct LatentTraits {
  int64_t rank = 0, query_rank = 0, rope_dim = 0, value_dim = 0;  // rank 0: no latent attention
  float norm_eps = 0;
};

// These are the same in every delta net; see DeltaNetDesc.
struct DeltaNetTraits {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
};

// These are the same in every short convolution; see ShortConvolutionDesc.
struct ShortConvolutionTraits {
  int64_t taps = 0;   // 0: recurrent layers are delta nets
  bool bias = false;  // of its matrices and of the convolution
};

// This layer predicts further tokens (AheadDesc). It is layer `index` of those that are called
// `layers`. The other names are whole ones, without ".weight".
struct AheadTraits {
  std::string layers, project, token_norm, stream_norm, norm;
  size_t index = 0;
  LayerTraits layer;
  bool joins_normed = false, goes_on_normed = false;

  bool present() const { return !project.empty(); }
};

struct DecoderTraits {
  TensorNames names;
  std::vector<LayerTraits> layers;
  float norm_eps = 0;
  float gain_offset = 0;         // of all norms except those of delta nets
  bool qk_norm = false;          // RMSNorm of queries and keys, over head_dim of every head
  bool qk_norm_of_all = false;   // or over all heads together
  bool qk_norms_turned = false;  // see AttentionDesc::norms_turned
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool attention_gate = false;  // see AttentionDesc::gated
  bool partial_rope = false;    // the family's code supports heads of which only a part is rotated
  bool paired_rope = false;     // neighbours in a head are rotated together (TensorPart::turned)
  // What attention and MLP give is normed as well, before it is added.
  bool norms_after = false;
  bool layer_norms = false;  // norms are centered (NormDesc)
  bool parallel = false;     // see LayerDesc
  bool ungated = false;      // the MLP has no matrix `gate`
  GateFunction gate_function = GateFunction::silu;
  float gate_slope = 1, gate_limit = 0;  // of GateFunction::clamped_silu
  bool sinks = false;                    // attention has sinks
  float branch_scale = 1;
  int64_t layer_embedding = 0;  // width of the embeddings of layers; 0: there are none
  LatentTraits latent;
  DeltaNetTraits delta_net;
  ShortConvolutionTraits short_convolution;
  ExpertTraits experts;
  AheadTraits ahead;
};

// Fills in layers, embedding, head and the tensors to ignore. hidden, vocab and tied_head must be
// set.
void build_layers(const DecoderTraits& traits, ModelConfig& config);

}  // namespace walsh
