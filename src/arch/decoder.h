// Lists in which traits the decoders of transformers differ. A family sets traits, and build_layers
// turns them into a model's description.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arch/config.h"

namespace walsh {

// Holds the names of a family's tensors. Names of a layer's tensors follow `layers` + index + ".";
// a weight is called name + ".weight", its bias name + ".bias". If a norm has no name, the model
// has no such norm. The defaults are the names of LlamaForCausalLM, which most families use.
struct TensorNames {
  std::string embedding = "model.embed_tokens.weight";
  std::string head = "lm_head.weight";
  std::string final_norm = "model.norm.weight";
  std::string layers = "model.layers.";
  std::string attention_norm = "input_layernorm";
  std::string q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string o = "self_attn.o_proj";
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  // These are for latent attention. A checkpoint has `latent` above `shared_key` in one tensor,
  // kv_down. Another one, kv_up, has for each head the rows of `key_up` above those of `value_up`.
  std::string query_down = "self_attn.q_a_proj", query_up = "self_attn.q_b_proj";
  std::string query_down_norm = "self_attn.q_a_layernorm";
  std::string kv_down = "self_attn.kv_a_proj_with_mqa";
  std::string latent = "self_attn.kv_a_proj", shared_key = "self_attn.k_rope_proj";
  std::string kv_up = "self_attn.kv_b_proj";
  std::string key_up = "self_attn.k_b_proj", value_up = "self_attn.v_b_proj";
  std::string kv_down_norm = "self_attn.kv_a_layernorm";
  std::string after_attention_norm = "post_attention_layernorm";
  std::string mlp_norm = "post_attention_layernorm";
  std::string after_mlp_norm = "post_feedforward_layernorm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string delta_qkv = "linear_attn.in_proj_qkv", delta_z = "linear_attn.in_proj_z";
  std::string delta_b = "linear_attn.in_proj_b", delta_a = "linear_attn.in_proj_a";
  std::string delta_o = "linear_attn.out_proj", delta_norm = "linear_attn.norm";
  // These are set if a checkpoint has qkv and z in one tensor, ordered by key heads, and b and a in
  // another.
  std::string delta_qkvz = "", delta_ba = "";
  // This is set if a checkpoint has the rows of z, of qkv and of b in one tensor.
  std::string delta_in = "";
  // These are for short convolutions. One tensor, short_in, has the rows of the gate before the
  // convolution, of the gate after it, and of the channels.
  std::string short_in = "conv.in_proj", short_o = "conv.out_proj";
  // These are set if a checkpoint has q, k and v in one tensor, or gate and up in one.
  std::string qkv = "", gate_up = "";
  // These are for layers with experts. A matrix of expert e is called `experts` + e + "." + its
  // name.
  std::string router = "mlp.gate", shared_gate = "mlp.shared_expert_gate";
  // This stands before gate_proj, up_proj and down_proj. If it is empty, the shared expert has the
  // names of the MLP.
  std::string shared = "mlp.shared_expert.";
  std::string experts = "mlp.experts.";
  // These are set if a model has norms in front of the router (whose name is used without
  // ".weight") and of the experts, after `mlp`, and after the experts.
  std::string router_norm = "", experts_norm = "", after_shared_norm = "";
  std::string after_experts_norm = "";
  std::string expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  // A checkpoint that stores all experts of a layer in one tensor per kind has tensors of these
  // names, without ".weight".
  std::string all_gate_up = "mlp.experts.gate_up_proj", all_down = "mlp.experts.down_proj";
  std::string all_up = "";  // Experts without gates have this in place of all_gate_up.
  // These are for the embeddings of layers. The first three belong to the whole model.
  std::string layer_embedding = "model.embed_tokens_per_layer.weight";
  std::string layer_projection = "model.per_layer_model_projection";
  std::string layer_projection_norm = "model.per_layer_projection_norm.weight";
  std::string layer_gate = "per_layer_input_gate", layer_out = "per_layer_projection";
  std::string after_layer_norm = "post_per_layer_input_norm";
  // A layer has these vectors, if it has the part that they belong to. The names are used without
  // ".weight".
  std::map<LayerVector, std::string> vectors;
};

// Says how a checkpoint orders the one tensor per kind that has all experts of a layer.
enum class ExpertOrder : uint8_t {
  // gate_up is [experts, 2 width, hidden] with gates first; down is [experts, hidden, width].
  rows,
  // gate_up is [experts, hidden, 2 width] with gates first; down is [experts, width, hidden].
  columns,
  // This equals `columns`, except that gate_up alternates gate, up, gate, up, ...
  interleaved,
  // The shapes in the checkpoint say whether it is `rows` or `columns`; `rows` if they fit both.
  any
};

// Describes the experts, which are the same in every layer that has some.
struct ExpertTraits {
  int64_t count = 0, chosen = 0, width = 0;
  RoutingDesc routing;
  bool router_bias = false, bias = false;
  bool gated_shared = false;  // If true, a matrix gates the shared expert.
  ExpertOrder order = ExpertOrder::rows;
};

// Describes the traits of one layer. A scale of 0 stands for 1 / sqrt(head_dim).
struct LayerTraits : AttentionOptions, HeadOptions {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int rope = 0;                  // This is an index into the config's ropes; -1: no rope.
  int cache_of = -1;             // AttentionDesc explains it.
  bool values_are_keys = false;  // If true, there is no matrix v.
  // If true, experts take the place of the MLP of width `intermediate`.
  bool experts = false;
  // Every token gets an expert of this width besides its own; 0: there is none.
  int64_t shared = 0;
  // If true, a delta net or a short convolution takes the place of attention.
  bool recurrent = false;
  // If one is false, the layer has only the other: a mixer, or an MLP or experts.
  bool mixer = true, feed_forward = true;

  LayerTraits() { scale = 0; }
};

// Describes latent attention (LatentDesc), which is the same in every layer that has it.
struct LatentTraits {
  // Rank 0 means that there is none.
  int64_t rank = 0, query_rank = 0, rope_dim = 0, value_dim = 0;
  float norm_eps = 0;
};

// Describes delta nets (DeltaNetDesc), which are the same in every layer that has one.
struct DeltaNetTraits : DeltaNetShape<int64_t> {
  // These are for additive ones.
  bool bias = false;
  float norm_eps = 0;
  float least_strength = 0, most_strength = std::numeric_limits<float>::infinity();
};

// Describes short convolutions (ShortConvolutionDesc), which are the same in every layer that has
// one.
struct ShortConvolutionTraits {
  int64_t taps = 0;   // If it is 0, recurrent layers are delta nets.
  bool bias = false;  // If true, its matrices have biases.
};

// Describes a layer that predicts ahead (AheadDesc). It is number `index` of those that are called
// `layers`. The other names are complete, but without ".weight".
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
  float gain_offset = 0;  // All norms have it, except those of delta nets.
  // If qk_norm, queries and keys have an RMSNorm over head_dim of every head; if qk_norm_of_all,
  // over all heads together.
  bool qk_norm = false;
  bool qk_norm_of_all = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool attention_gate = false;  // See AttentionDesc::gated.
  // If true, the family's code supports heads of which rope turns only a part.
  bool partial_rope = false;
  // If true, rope turns neighbours in a head as a pair (TensorPart::turned).
  bool paired_rope = false;
  // If true, the outputs of attention and MLP are normed before they are added.
  bool norms_after = false;
  bool layer_norms = false;  // If true, norms are centered (NormDesc).
  bool parallel = false;     // See LayerDesc.
  bool ungated = false;      // If true, the MLP has no matrix `gate`.
  GateFunction gate_function = GateFunction::silu;
  float gate_slope = 1, gate_limit = 0;  // GateFunction::clamped_silu uses these.
  float branch_scale = 1;
  int64_t layer_embedding = 0;  // Embeddings of layers have this width; 0: there are none.
  LatentTraits latent;
  DeltaNetTraits delta_net;
  ShortConvolutionTraits short_convolution;
  ExpertTraits experts;
  AheadTraits ahead;
};

// Sets layers, embedding, head and the tensors to ignore. hidden, vocab and tied_head of the config
// must be set before.
void build_layers(const DecoderTraits& traits, ModelConfig& config);

}  // namespace walsh
