// GLM-4.5 and 4.6: sigmoid scores with a bias for the choice alone, groups of experts, an expert
// that every token gets; the first layers have an MLP.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMostExperts = 4096, kMostLayers = int64_t{1} << 31;

void read(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  TensorNames& names = traits.names;
  names.shared = "mlp.shared_experts.";
  traits.partial_rope = true;
  traits.qkv_bias = reader.boolean_or("attention_bias", false);
  traits.qk_norm = reader.boolean_or("use_qk_norm", false);
  read_expert_counts(reader, "moe_intermediate_size", traits);
  ExpertTraits& e = traits.experts;
  e.choice_bias = "mlp.gate.e_score_correction_bias";
  RoutingDesc& routing = e.routing;
  routing.sigmoid = true;
  routing.groups = reader.integer_or("n_group", 1, 1, kMostExperts);
  routing.groups_chosen = reader.integer_or("topk_group", 1, 1, kMostExperts);
  routing.group_best = 2;
  if (e.count % routing.groups != 0)
    reader.refuse("n_group", "the experts cannot be split into as many groups");
  if (routing.groups_chosen > routing.groups) reader.refuse("topk_group", "more than n_group");
  if (e.chosen > e.count / routing.groups * routing.groups_chosen)
    reader.refuse("num_experts_per_tok", "more than the chosen groups have");
  routing.normalized = reader.boolean_or("norm_topk_prob", true);
  routing.scale = static_cast<float>(reader.number_or("routed_scaling_factor", 1, 1e-6, 1e6));
  const int64_t shared = reader.integer_or("n_shared_experts", 1, 1, kMostExperts);
  const int64_t dense = reader.integer_or("first_k_dense_replace", 1, 0, kMostLayers);
  for (size_t i = 0; i < traits.layers.size(); ++i) {
    traits.layers[i].experts = static_cast<int64_t>(i) >= dense;
    traits.layers[i].shared = shared * e.width;
  }
  // Of layers that predict further tokens, which are not there.
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"})
    reader.value(key);
}

}  // namespace

const Family kGlm4Moe = {"glm4_moe", "Glm4MoeForCausalLM", read, {.share = 0.5}};

}  // namespace walsh
