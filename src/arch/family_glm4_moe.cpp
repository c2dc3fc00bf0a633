// GLM-4.5 and 4.6 score experts by sigmoids with a bias that affects only the choice, in groups,
// and have a shared expert; the first layers have a dense MLP.
#include "arch/family.h"

namespace walsh {
namespace {

void read_glm4_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.partial_rope = true;
  traits.qkv_bias = reader.boolean_or("attention_bias", false);
  traits.qk_norm = reader.boolean_or("use_qk_norm", false);
  read_expert_counts(reader, "moe_intermediate_size", traits);
  ExpertTraits& e = traits.experts;
  traits.names.vectors[LayerVector::choice_bias] = "mlp.gate.e_score_correction_bias";
  e.routing.sigmoid = true;
  e.routing.normalized = reader.boolean_or("norm_topk_prob", true);
  read_expert_groups(reader, 2, traits);
  read_shared_experts(reader, 1, traits);
  read_guessing_layers(reader, traits, config);
}

}  // namespace

const Family kGlm4Moe = {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, {.share = 0.5}};

}  // namespace walsh
