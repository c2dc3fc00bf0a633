// What families with experts have in common: counts, and which layers have them.
#include <fmt/format.h>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxLayers = int64_t{1} << 31;

}  // namespace

void read_expert_counts(ConfigReader& reader, const char* width, DecoderTraits& traits) {
  constexpr int64_t kMaxWidth = int64_t{1} << 20;
  ExpertTraits& e = traits.experts;
  // The name depends on the family and on the version of transformers; some files have two.
  const char* count = nullptr;
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (reader.value(key) == nullptr) continue;
    const int64_t found = reader.integer(key, 1, kMaxExperts);
    if (count != nullptr && found != e.count)
      reader.refuse(key, fmt::format("not equal to {}", count));
    count = key;
    e.count = found;
  }
  if (count == nullptr) reader.refuse("num_experts", "expected the number of experts");
  e.chosen = reader.integer("num_experts_per_tok", 1, kMaxExperts);
  if (e.chosen > e.count)
    reader.refuse("num_experts_per_tok", fmt::format("more than the {} experts", e.count));
  e.width = reader.integer(width, 1, kMaxWidth);
  for (LayerTraits& layer : traits.layers)
    layer.experts = true;
  // Of training alone.
  for (const char* key : {"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"})
    reader.value(key);
}

void read_dense_layers(ConfigReader& reader, DecoderTraits& traits) {
  const int64_t step = reader.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  for (size_t i = 0; i < traits.layers.size(); ++i)
    traits.layers[i].experts = (static_cast<int64_t>(i) + 1) % step == 0;
  const Json* dense = reader.value("mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) reader.refuse("mlp_only_layers", "expected a list of layers");
  for (const Json& layer : *dense) {
    const bool known = layer.is_number_unsigned() && layer.get<uint64_t>() < traits.layers.size();
    if (!known) reader.refuse("mlp_only_layers", "expected numbers of layers");
    traits.layers[layer.get<size_t>()].experts = false;
  }
}

}  // namespace walsh
