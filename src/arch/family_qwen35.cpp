// The text part of Qwen 3.5 and Qwen3-Next have gated delta nets and, every few layers, attention,
// whose queries and keys have norms and whose heads have gates. Gains are stored minus one. There
// may be experts.
#include <fmt/format.h>

#include <array>

#include "arch/family.h"

namespace walsh {
namespace {

// transformers has these defaults for absent keys.
constexpr int64_t kDefaultHeadDim = 256, kDefaultInterval = 4;
constexpr int64_t kMaxHeads = 1024, kMaxDim = 256, kDimUnit = 16, kMaxTaps = 16;
constexpr int64_t kMostAhead = 64;

// transformers saves the text part of a model with vision under the names that it has in the whole
// model.
constexpr auto kStoredNames = std::to_array<NameRule>({{"model.language_model.", "model."}});

DeltaNetTraits read_delta_net(ConfigReader& reader) {
  DeltaNetTraits d;
  d.key_heads = reader.integer_or("linear_num_key_heads", 16, 1, kMaxHeads);
  d.value_heads = reader.integer_or("linear_num_value_heads", 32, 1, kMaxHeads);
  d.key_dim = reader.integer_or("linear_key_head_dim", 128, 1, kMaxDim);
  d.value_dim = reader.integer_or("linear_value_head_dim", 128, 1, kMaxDim);
  d.taps = reader.integer_or("linear_conv_kernel_dim", 4, 2, kMaxTaps);
  if (d.value_heads % d.key_heads != 0) {
    reader.refuse("linear_num_value_heads",
                  fmt::format("expected a multiple of linear_num_key_heads {}", d.key_heads));
  }
  if (d.key_dim % kDimUnit != 0)
    reader.refuse("linear_key_head_dim", fmt::format("expected a multiple of {}", kDimUnit));
  if (d.value_dim % kDimUnit != 0)
    reader.refuse("linear_value_head_dim", fmt::format("expected a multiple of {}", kDimUnit));
  return d;
}

void read_mixers(ConfigReader& reader, DecoderTraits& traits) {
  const int64_t interval =
      reader.optional_integer("full_attention_interval", kDefaultInterval, 1, int64_t{1} << 31);
  const std::vector<bool> listed = layers_of_kind(reader, "linear_attention", traits);
  for (size_t i = 0; i < traits.layers.size(); ++i)
    traits.layers[i].recurrent =
        listed.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0 : listed[i];
}

void read_qwen35(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.gain_offset = 1;
  traits.qk_norm = true;
  traits.attention_gate = true;
  traits.partial_rope = true;
  reader.only("attn_output_gate", true);
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  config.stored_names = kStoredNames;
  if (reader.value("head_dim") == nullptr)
    for (LayerTraits& layer : traits.layers)
      layer.head_dim = kDefaultHeadDim;
  traits.delta_net = read_delta_net(reader);
  traits.names.vectors = {{LayerVector::taps, "linear_attn.conv1d.weight"},
                          {LayerVector::decay_rate, "linear_attn.A_log"},
                          {LayerVector::decay_bias, "linear_attn.dt_bias"}};
  read_mixers(reader, traits);
  // Other programs store states in this type; walsh always uses float32.
  reader.value("mamba_ssm_dtype");
}

// Reads the layers that predict further tokens. The first one becomes AheadDesc and has attention;
// the others, and one with an embedding of its own, are left out. `absent` is the number of such
// layers if no key states it.
void read_ahead(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config, int64_t absent) {
  const int64_t count = reader.optional_integer("mtp_num_hidden_layers", absent, 0, kMostAhead);
  if (reader.boolean_or("mtp_use_dedicated_embeddings", false) || count == 0) {
    config.left_out.push_back("mtp.");
    return;
  }
  AheadTraits& a = traits.ahead;
  a.layers = "mtp.layers.";
  a.layer = traits.layers.back();
  a.layer.recurrent = false;
  a.project = "mtp.fc";
  a.token_norm = "mtp.pre_fc_norm_embedding";
  a.stream_norm = "mtp.pre_fc_norm_hidden";
  a.norm = "mtp.norm";
  a.joins_normed = a.goes_on_normed = true;
  for (int64_t i = 1; i < count; ++i)
    config.left_out.push_back(fmt::format("mtp.layers.{}.", i));
}

void read_qwen35_dense(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_qwen35(reader, traits, config);
  read_ahead(reader, traits, config, 0);
}

void read_experts_too(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config,
                      int64_t absent_ahead) {
  read_qwen35(reader, traits, config);
  read_qwen_experts(reader, traits);
  read_ahead(reader, traits, config, absent_ahead);
}

void read_qwen35_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_experts_too(reader, traits, config, 0);
}

void read_qwen3_next(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_experts_too(reader, traits, config, 1);  // Published files have the layer, but no key.
  traits.names.delta_qkvz = "linear_attn.in_proj_qkvz";
  traits.names.delta_ba = "linear_attn.in_proj_ba";
  traits.experts.routing.normalized = reader.boolean_or("norm_topk_prob", true);
}

constexpr RopeDefaults kRope = {.share = 0.25, .sections = {11, 11, 10}};
constexpr RopeDefaults kTextRope = {.share = 0.25};

}  // namespace

const Family kQwen35 = {"qwen3_5_text", "Qwen3_5ForCausalLM", read_qwen35_dense, kRope};
const Family kQwen35Moe = {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", read_qwen35_moe, kRope};
const Family kQwen3Next = {"qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, kTextRope};

}  // namespace walsh
