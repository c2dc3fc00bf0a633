// Granite is Llama with multipliers; some models have experts, stored in one tensor per layer.
// Granite 4 has Mamba-2 mixers in most layers, and a shared MLP beside or in place of experts.
#include <cmath>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr double kLeast = 1e-6, kMost = 1e6;  // A multiplier is within this range.

void read_granite(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  const auto multiplier = [&](const char* key) { return reader.number_or(key, 1, kLeast, kMost); };
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  config.logit_scale = static_cast<float>(1 / multiplier("logits_scaling"));
  // Null means the usual scale of attention; without the key the scale is 1.
  constexpr const char* kAttention = "attention_multiplier";
  const bool usual = reader.is_null(kAttention);
  const auto attention = static_cast<float>(reader.optional_number(kAttention, 1, kLeast, kMost));
  for (LayerTraits& layer : traits.layers)
    layer.scale =
        usual ? static_cast<float>(1 / std::sqrt(static_cast<double>(layer.head_dim))) : attention;
  // The model multiplies every branch by r before it is added to the residual stream, which only
  // norms read. If the stream is kept divided by r, that factor is not needed; norms give the same
  // results if their eps is divided by r^2.
  const double r = multiplier("residual_multiplier");
  config.embedding_scale = static_cast<float>(multiplier("embedding_multiplier") / r);
  traits.norm_eps = static_cast<float>(static_cast<double>(traits.norm_eps) / (r * r));
}

void read_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_granite(reader, traits, config);
  TensorNames& names = traits.names;
  names.router = "block_sparse_moe.router.layer";
  names.experts = "block_sparse_moe.experts.";
  names.all_gate_up = "block_sparse_moe.input_linear.weight";
  names.all_down = "block_sparse_moe.output_linear.weight";
  read_expert_counts(reader, "intermediate_size", traits);
}

void read_layer_list(ConfigReader& reader, DecoderTraits& traits) {
  const char* key = reader.has("layers_block_type") ? "layers_block_type" : "layer_types";
  for (LayerTraits& layer : traits.layers)
    layer.recurrent = true;
  const std::vector<std::string> kinds = kinds_of_layers(reader, key, traits);
  for (size_t i = 0; i < kinds.size(); ++i) {
    traits.layers[i].recurrent = is_mamba2(kinds[i]);
    if (!traits.layers[i].recurrent && !is_attention(kinds[i]))
      reader.refuse(key, "expected 'mamba' or 'attention'");
  }
}

void set_hybrid_names(TensorNames& names) {
  names.shared = "";
  names.gate = "shared_mlp.gate_proj";
  names.up = "shared_mlp.up_proj";
  names.gate_up = "shared_mlp.input_linear";
  names.down = "shared_mlp.output_linear";
  set_mamba2_names("mamba.", names);
}

// Reads the limits of time steps. JSON has no infinite numbers, so transformers writes an object.
void read_step_limits(ConfigReader& reader, DeltaNetTraits& d) {
  constexpr const char* kKey = "time_step_limit";
  const Json* limits = reader.value(kKey);
  if (limits == nullptr) return;
  const auto is_limit = [](const Json& value) { return value.is_number() && value >= 0; };
  if (!limits->is_array() || limits->size() != 2 || !is_limit((*limits)[0]))
    reader.refuse(kKey, "expected two numbers");
  d.least_strength = (*limits)[0].get<float>();
  const Json& most = (*limits)[1];
  if (most == Json{{"__float__", "Infinity"}}) return;
  if (!is_limit(most) || most.get<float>() < d.least_strength)
    reader.refuse(kKey, "expected two numbers");
  d.most_strength = most.get<float>();
}

// The width of a head may be "auto": the heads together are `mamba_expand` times as wide as the
// stream.
void read_mixers(ConfigReader& reader, const ModelConfig& config, DecoderTraits& traits) {
  constexpr Mamba2Keys kKeys = {"mamba_n_heads",  "mamba_d_head", "mamba_n_groups",
                                "mamba_d_state",  "mamba_d_conv", "mamba_conv_bias",
                                "mamba_proj_bias"};
  const int64_t heads = reader.integer_or("mamba_n_heads", 128, 1, 4096);
  const int64_t width = config.hidden * reader.integer_or("mamba_expand", 2, 1, 64);
  read_mamba2(reader, kKeys, {heads, width / heads, 1, 256}, traits);
  read_step_limits(reader, traits.delta_net);
  if (traits.delta_net.value_heads * traits.delta_net.value_dim != width)
    reader.refuse("mamba_n_heads", "expected heads that are mamba_expand times hidden_size wide");
  read_layer_list(reader, traits);
}

void read_hybrid(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  // read_granite() scales norm_eps with the stream, which the norm of a mixer does not read.
  traits.delta_net.norm_eps = traits.norm_eps;
  reader.only("mlp_bias", false);
  if (reader.integer("num_local_experts", 0, 4096) > 0) {
    read_moe(reader, traits, config);
  } else {
    read_granite(reader, traits, config);
    for (const char* key : {"num_experts_per_tok", "router_aux_loss_coef", "output_router_logits"})
      reader.value(key);
  }
  set_hybrid_names(traits.names);
  const int64_t shared = reader.integer("shared_intermediate_size", 1, int64_t{1} << 20);
  const auto positions = reader.text("position_embedding_type");
  if (positions && *positions != "rope" && *positions != "nope")
    reader.refuse("position_embedding_type", "expected 'rope' or 'nope'");
  for (LayerTraits& layer : traits.layers) {
    layer.intermediate = layer.shared = shared;
    if (!positions || *positions == "nope") layer.rope = -1;
  }
  read_mixers(reader, config, traits);
  reader.only("normalization_function", "rmsnorm");
  reader.value("init_method");
}

constexpr std::string_view kHybridDefaults =
    R"({"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024})";

}  // namespace

const Family kGranite = {"granite", "GraniteForCausalLM", read_granite};
const Family kGraniteMoe = {"granitemoe", "GraniteMoeForCausalLM", read_moe};
const Family kGraniteHybrid = {
    "granitemoehybrid", "GraniteMoeHybridForCausalLM", read_hybrid, {}, kHybridDefaults};

}  // namespace walsh
