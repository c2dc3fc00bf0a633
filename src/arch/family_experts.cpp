// Helps families with experts. It reads the numbers of experts, and which layers have them.
#include <fmt/format.h>

#include <algorithm>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMaxExperts = 4096, kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = int64_t{1} << 31;
constexpr int64_t kMostGuessingLayers = 64;

}  // namespace

void set_mixtral_names(TensorNames& names) {
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
}

void read_expert_counts(ConfigReader& reader, const char* width, DecoderTraits& traits) {
  ExpertTraits& e = traits.experts;
  // The name of the key depends on the family and on the version of transformers; some files have
  // two of them.
  const char* count = nullptr;
  for (const char* key :
       {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    if (reader.value(key) == nullptr) continue;
    const int64_t found = reader.integer(key, 1, kMaxExperts);
    if (count != nullptr && found != e.count)
      reader.refuse(key, fmt::format("not equal to {}", count));
    count = key;
    e.count = found;
  }
  if (count == nullptr) reader.refuse("num_experts", "expected the number of experts");
  const char* chosen = reader.has("moe_k") ? "moe_k" : "num_experts_per_tok";
  e.chosen = reader.integer(chosen, 1, kMaxExperts);
  if (e.chosen > e.count) reader.refuse(chosen, fmt::format("more than the {} experts", e.count));
  e.width = reader.integer(width, 1, kMaxWidth);
  for (LayerTraits& layer : traits.layers)
    layer.experts = true;
  // These keys are for training only.
  for (const char* key : {"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"})
    reader.value(key);
}

void read_dense_layers(ConfigReader& reader, DecoderTraits& traits) {
  const int64_t step = reader.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  for (size_t i = 0; i < traits.layers.size(); ++i)
    traits.layers[i].experts = (static_cast<int64_t>(i) + 1) % step == 0;
  for (const size_t layer : listed_layers(reader, "mlp_only_layers", traits))
    traits.layers[layer].experts = false;
}

void read_qwen_experts(ConfigReader& reader, DecoderTraits& traits) {
  read_expert_counts(reader, "moe_intermediate_size", traits);
  read_dense_layers(reader, traits);
  traits.experts.gated_shared = true;
  const int64_t shared = reader.integer("shared_expert_intermediate_size", 1, kMaxWidth);
  for (LayerTraits& layer : traits.layers)
    layer.shared = shared;
}

void read_expert_groups(ConfigReader& reader, int64_t group_best, DecoderTraits& traits,
                        bool grouped) {
  const ExpertTraits& e = traits.experts;
  RoutingDesc& routing = traits.experts.routing;
  const auto count = [&](const char* key) {
    if (grouped) return reader.integer_or(key, 1, 1, kMaxExperts);
    reader.value(key);
    return int64_t{1};
  };
  routing.groups = count("n_group");
  routing.groups_chosen = count("topk_group");
  routing.group_best = group_best;
  if (e.count % routing.groups != 0)
    reader.refuse("n_group", "the experts cannot be split into as many groups");
  if (routing.groups_chosen > routing.groups) reader.refuse("topk_group", "more than n_group");
  if (e.chosen > e.count / routing.groups * routing.groups_chosen)
    reader.refuse("num_experts_per_tok", "more than the chosen groups have");
  routing.scale = static_cast<float>(reader.number_or("routed_scaling_factor", 1, 1e-6, 1e6));
}

void read_shared_experts(ConfigReader& reader, int64_t dense_layers, DecoderTraits& traits) {
  const int64_t shared = reader.integer_or("n_shared_experts", 1, 1, kMaxExperts);
  const int64_t dense = reader.integer_or("first_k_dense_replace", dense_layers, 0, kMaxLayers);
  traits.names.shared = "mlp.shared_experts.";
  for (size_t i = 0; i < traits.layers.size(); ++i) {
    traits.layers[i].experts = static_cast<int64_t>(i) >= dense;
    traits.layers[i].shared = shared * traits.experts.width;
  }
}

void read_guessing_layers(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  int64_t count = 0;
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"})
    count = std::max(count, reader.optional_integer(key, 0, 0, kMostGuessingLayers));
  if (count == 0) return;
  const auto layers = static_cast<int64_t>(traits.layers.size());
  const auto name = [&](int64_t i) {
    return fmt::format("{}{}.", traits.names.layers, layers + i);
  };
  AheadTraits& a = traits.ahead;
  a.layers = traits.names.layers;
  a.index = traits.layers.size();
  a.layer = traits.layers.back();
  a.layer.experts = true;
  a.project = name(0) + "eh_proj";
  a.token_norm = name(0) + "enorm";
  a.stream_norm = name(0) + "hnorm";
  a.norm = name(0) + "shared_head.norm";
  a.joins_normed = true;
  // These tensors are copies of the model's own embedding and head.
  config.left_out = {name(0) + "embed_tokens.", name(0) + "shared_head.head."};
  for (int64_t i = 1; i < count; ++i)
    config.left_out.push_back(name(i));
}

}  // namespace walsh
