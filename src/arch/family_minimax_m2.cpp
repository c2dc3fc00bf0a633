// MiniMax-M2 has experts as Mixtral has them, scored by sigmoids with a bias that affects only the
// choice. It has norms over the queries and over the keys of all heads, and rope on a part of every
// head.
#include "arch/family.h"

namespace walsh {
namespace {

// Returns whether the file states which share of a head rope turns; `rotary_dim` then has no
// effect.
bool states_share(ConfigReader& reader) {
  constexpr const char* kShare = "partial_rotary_factor";
  bool stated = reader.has(kShare);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* set = reader.value(key);
    stated |= set != nullptr && set->contains(kShare);
  }
  return stated;
}

// Reads the length of the turned part of a head, which published files state under this key.
void read_rotated(ConfigReader& reader, const DecoderTraits& traits, ModelConfig& config) {
  constexpr const char* kKey = "rotary_dim";
  if (reader.value(kKey) == nullptr) return;
  const int64_t dim = traits.layers[0].head_dim;
  const int64_t rotated = reader.integer(kKey, 2, dim);
  if (states_share(reader)) {
    if (rotated != rotated_values(config.ropes[0], dim))
      reader.refuse(kKey, "contradicts partial_rotary_factor");
    return;
  }
  config.ropes[0].share = static_cast<double>(rotated) / static_cast<double>(dim);
}

// transformers does not read these keys of published files, in which only these values exist.
void read_published(ConfigReader& reader) {
  reader.only("scoring_func", "sigmoid");
  reader.only("use_routing_bias", true);
  reader.only("use_qk_norm", true);
  reader.only("qk_norm_type", "per_layer");
  reader.only("shared_intermediate_size", 0);
  if (const Json* types = reader.value("attn_type_list"); types != nullptr) {
    for (const Json& type : *types)
      if (type != 1) reader.refuse("attn_type_list", "expected 1 only, which is attention");
  }
  for (const char* key : {"use_mtp", "num_mtp_modules", "mtp_transformer_layers"})
    reader.value(key);
}

void read_minimax_m2(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  set_mixtral_names(traits.names);
  traits.partial_rope = true;
  traits.qk_norm = traits.qk_norm_of_all = true;
  read_rotated(reader, traits, config);
  read_published(reader);
  read_expert_counts(reader, "intermediate_size", traits);
  ExpertTraits& e = traits.experts;
  traits.names.vectors[LayerVector::choice_bias] = "block_sparse_moe.e_score_correction_bias";
  e.routing.sigmoid = true;
  config.left_out.push_back("model.mtp");
}

constexpr std::string_view kDefaults = R"({"num_key_value_heads": 8, "head_dim": 128})";

}  // namespace

const Family kMiniMaxM2 = {
    "minimax_m2", "MiniMaxM2ForCausalLM", read_minimax_m2, {.theta = 5e6}, kDefaults};

}  // namespace walsh
