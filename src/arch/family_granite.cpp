// Granite is Llama with multipliers; some models have experts, stored in one tensor per layer.
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

}  // namespace

const Family kGranite = {"granite", "GraniteForCausalLM", read_granite};
const Family kGraniteMoe = {"granitemoe", "GraniteMoeForCausalLM", read_moe};

}  // namespace walsh
