// LFM2 has short convolutions between gates in most layers, and attention with norms of queries and
// keys in the others. In models with experts, the first layers have a dense MLP.
#include <fmt/format.h>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMaxTaps = 16;
constexpr int64_t kMaxWidth = int64_t{1} << 20, kMaxLayers = int64_t{1} << 31;

void set_names(TensorNames& names) {
  names.final_norm = "model.embedding_norm.weight";
  names.attention_norm = "operator_norm";
  names.mlp_norm = "ffn_norm";
  names.o = "self_attn.out_proj";
  names.q_norm = "self_attn.q_layernorm";
  names.k_norm = "self_attn.k_layernorm";
  names.gate = "feed_forward.w1";
  names.up = "feed_forward.w3";
  names.down = "feed_forward.w2";
  names.router = "feed_forward.gate";
  names.experts = "feed_forward.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  names.all_gate_up = "feed_forward.experts.gate_up_proj";
  names.all_down = "feed_forward.experts.down_proj";
}

// Returns false if there is no list of types.
bool read_layer_list(ConfigReader& reader, DecoderTraits& traits) {
  const std::vector<bool> recurrent = layers_of_kind(reader, "conv", traits);
  for (size_t i = 0; i < recurrent.size(); ++i)
    traits.layers[i].recurrent = recurrent[i];
  return !recurrent.empty();
}

// Reads which layers have attention from files of dense models, which have no list of types:
// `full_attn_idxs` lists them, and without it all layers have attention.
void read_layers_with_attention(ConfigReader& reader, DecoderTraits& traits) {
  constexpr const char* kKey = "full_attn_idxs";
  if (reader.value(kKey) == nullptr) return;
  for (LayerTraits& layer : traits.layers)
    layer.recurrent = true;
  for (const size_t layer : listed_layers(reader, kKey, traits))
    traits.layers[layer].recurrent = false;
}

void read_shared(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  set_names(traits.names);
  traits.qk_norm = true;
  traits.short_convolution.taps = reader.integer_or("conv_L_cache", 3, 2, kMaxTaps);
  traits.short_convolution.bias = reader.boolean_or("conv_bias", false);
  traits.names.vectors[LayerVector::taps] = "conv.conv.weight";
  if (traits.short_convolution.bias)
    traits.names.vectors[LayerVector::taps_bias] = "conv.conv.bias";
  if (reader.value("tie_embedding") != nullptr)  // This key takes precedence.
    config.tied_head = reader.boolean_or("tie_embedding", true);
  // transformers does not read these keys of published files, in which only these values exist.
  reader.only("block_use_swiglu", true);
  reader.only("use_pos_enc", true);
  for (const char* key : {"block_dim", "conv_dim", "conv_dim_out"})
    reader.only(key, config.hidden);
  reader.only("num_heads", traits.layers.front().heads);
  for (const char* key : {"block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
                          "block_use_xavier_init", "conv_use_xavier_init"})
    reader.value(key);
}

// Returns the width of the MLP. It is two thirds of what the file states, unless the file says
// otherwise, multiplied and rounded up as other keys say.
int64_t mlp_width(ConfigReader& reader, int64_t stated) {
  int64_t width = reader.optional_integer("block_ff_dim", stated, 1, kMaxWidth);
  const bool adjusted = reader.boolean_or("block_auto_adjust_ff_dim", true);
  const int64_t unit = reader.integer_or("block_multiple_of", 256, 1, kMaxWidth);
  constexpr const char* kFactor = "block_ffn_dim_multiplier";
  const double factor = reader.optional_number(kFactor, 1, 1e-3, 1e3);
  if (!adjusted || width == 0) return width;
  width = 2 * width / 3;
  if (reader.is_null(kFactor)) return width;
  width = static_cast<int64_t>(factor * static_cast<double>(width));
  width = (width + unit - 1) / unit * unit;
  if (width > kMaxWidth) reader.refuse(kFactor, fmt::format("the MLP's width is {}", width));
  return width;
}

void read_lfm2(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_shared(reader, traits, config);
  const int64_t width = mlp_width(reader, traits.layers.front().intermediate);
  for (LayerTraits& layer : traits.layers)
    layer.intermediate = width;
  read_layers_with_attention(reader, traits);
  read_layer_list(reader, traits);
}

void read_lfm2_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_shared(reader, traits, config);
  reader.value("full_attn_idxs");  // Models with experts do not use it.
  if (!read_layer_list(reader, traits))
    reader.refuse("layer_types", "expected one entry per layer");
  read_expert_counts(reader, "moe_intermediate_size", traits);
  ExpertTraits& e = traits.experts;
  e.routing.sigmoid = true;
  e.routing.normalized = reader.boolean_or("norm_topk_prob", true);
  e.routing.scale = static_cast<float>(reader.number_or("routed_scaling_factor", 1, 1e-6, 1e6));
  if (reader.boolean_or("use_expert_bias", true))
    traits.names.vectors[LayerVector::choice_bias] = "feed_forward.expert_bias";
  const int64_t dense = reader.integer_or("num_dense_layers", 2, 0, kMaxLayers);
  for (size_t i = 0; i < traits.layers.size(); ++i)
    traits.layers[i].experts = static_cast<int64_t>(i) >= dense;
}

constexpr RopeDefaults kRope = {.theta = 1e6};
constexpr std::string_view kDefaults =
    R"({"tie_word_embeddings": true, "num_key_value_heads": 8, "norm_eps": 1e-5})";

}  // namespace

const Family kLfm2 = {"lfm2", "Lfm2ForCausalLM", read_lfm2, kRope, kDefaults, "norm_eps"};
const Family kLfm2Moe = {"lfm2_moe", "Lfm2MoeForCausalLM", read_lfm2_moe, kRope, kDefaults,
                         "norm_eps"};

}  // namespace walsh
