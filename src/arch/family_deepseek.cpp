// DeepSeek-V2 and V3 have latent attention, routed experts in groups, of which only the best take
// part, and shared experts; the first layers have a dense MLP. V2 scores experts by softmax, V3 by
// sigmoids with a bias that affects only the choice.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMaxRank = int64_t{1} << 16;
constexpr int64_t kMaxDim = 1024;        // A head has at most this many values, as elsewhere.
constexpr float kLatentNormEps = 1e-6F;  // It is fixed; rms_norm_eps does not change it.

// transformers has these defaults for absent keys.
struct Defaults {
  int64_t rank = 512, query_rank = 1536, plain_dim = 128, rope_dim = 64, value_dim = 128;
};

// Reads the sizes of the latents and of the parts of a head.
void read_latent(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  constexpr Defaults kDefaults;
  LatentTraits& l = traits.latent;
  l.norm_eps = kLatentNormEps;
  l.rank = reader.integer_or("kv_lora_rank", kDefaults.rank, 1, kMaxRank);
  // Null means that queries have no latent; for an absent key transformers has a default.
  const int64_t absent = reader.has("q_lora_rank") ? 0 : kDefaults.query_rank;
  l.query_rank = reader.optional_integer("q_lora_rank", absent, 1, kMaxRank);
  l.rope_dim = reader.integer_or("qk_rope_head_dim", kDefaults.rope_dim, 2, kMaxDim);
  l.value_dim = reader.integer_or("v_head_dim", kDefaults.value_dim, 1, kMaxDim);
  const int64_t plain = reader.integer_or("qk_nope_head_dim", kDefaults.plain_dim, 1, kMaxDim);
  const int64_t head_dim = plain + l.rope_dim;
  // transformers 5 writes the size of a head's turned part as head_dim, and that of a whole head as
  // qk_head_dim.
  if (reader.value("head_dim") != nullptr && traits.layers[0].head_dim != l.rope_dim)
    reader.refuse("head_dim", "expected qk_rope_head_dim");
  reader.only("qk_head_dim", head_dim);
  if (traits.layers[0].kv_heads != traits.layers[0].heads)
    reader.refuse("num_key_value_heads", "expected num_attention_heads");
  if (l.value_dim > head_dim) {
    reader.refuse("v_head_dim", fmt::format("more than the {} values of a key", head_dim));
  }
  if (l.rope_dim % 2 != 0) reader.refuse("qk_rope_head_dim", "expected an even number");
  RopeConfig& rope = config.ropes[0];
  rope.dim = l.rope_dim;
  const double scale = rope.logit_factor / std::sqrt(static_cast<double>(head_dim));
  for (LayerTraits& layer : traits.layers) {
    layer.head_dim = head_dim;
    layer.scale = static_cast<float>(scale);
  }
}

void read_both(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_latent(reader, traits, config);
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  read_expert_counts(reader, "moe_intermediate_size", traits);
  reader.only("moe_layer_freq", 1);
  // These keys are for training, and for distributing experts over machines in other programs.
  for (const char* key : {"aux_loss_alpha", "seq_aux", "ep_size"})
    reader.value(key);
}

void read_v2(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_both(reader, traits, config);
  traits.paired_rope = true;
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  reader.only("scoring_func", "softmax");
  // transformers' code does not apply the factor to normalized weights. No published model
  // normalizes them.
  reader.only("norm_topk_prob", false);
  traits.experts.routing.normalized = false;
  const std::string method = reader.text("topk_method").value_or("greedy");
  const bool known = method == "greedy" || method == "group_limited_greedy";
  if (!known || reader.is_null("topk_method"))
    reader.refuse("topk_method", "expected 'greedy' or 'group_limited_greedy'");
  read_expert_groups(reader, 1, traits, method != "greedy");
  read_shared_experts(reader, 0, traits);
  read_guessing_layers(reader, traits, config);
}

void read_v3(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_both(reader, traits, config);
  traits.paired_rope = reader.boolean_or("rope_interleave", true);
  reader.only("scoring_func", "sigmoid");
  reader.only("topk_method", "noaux_tc");
  ExpertTraits& e = traits.experts;
  traits.names.vectors[LayerVector::choice_bias] = "mlp.gate.e_score_correction_bias";
  e.routing.sigmoid = true;
  e.routing.normalized = reader.boolean_or("norm_topk_prob", true);
  read_expert_groups(reader, 2, traits);
  read_shared_experts(reader, 3, traits);
  read_guessing_layers(reader, traits, config);
}

constexpr std::string_view kV3Defaults = R"({"n_group": 8, "topk_group": 4,
    "routed_scaling_factor": 2.5})";

}  // namespace

const Family kDeepseekV2 = {"deepseek_v2", "DeepseekV2ForCausalLM", read_v2};
const Family kDeepseekV3 = {"deepseek_v3", "DeepseekV3ForCausalLM", read_v3, {}, kV3Defaults};

}  // namespace walsh
