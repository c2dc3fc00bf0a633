// ERNIE 4.5 is Llama whose rope turns neighbours in a head as a pair. In models with experts, the
// layers of a range have them, beside shared experts. Experts are chosen by the probabilities of a
// softmax and a bias.
#include <fmt/format.h>

#include "arch/family.h"

namespace walsh {
namespace {

void read_ernie45(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.paired_rope = true;
  traits.qkv_bias = traits.o_bias = traits.mlp_bias = reader.boolean_or("use_bias", false);
}

// Gives experts to every `moe_layer_interval`-th layer from `moe_layer_start_index` to
// `moe_layer_end_index`; -1 is the last layer.
void read_expert_layers(ConfigReader& reader, DecoderTraits& traits) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto layers = static_cast<int64_t>(traits.layers.size());
  const int64_t interval = reader.integer_or("moe_layer_interval", 1, 1, kMost);
  const int64_t start = reader.integer_or("moe_layer_start_index", 1, 0, kMost);
  const int64_t end = reader.integer_or("moe_layer_end_index", -1, -1, kMost);
  const int64_t shared = reader.integer_or("moe_num_shared_experts", 2, 0, 4096);
  traits.names.shared = "mlp.shared_experts.";
  for (int64_t i = 0; i < layers; ++i) {
    LayerTraits& layer = traits.layers[static_cast<size_t>(i)];
    layer.experts = (i + 1) % interval == 0 && i >= start && (end == -1 || i <= end);
    layer.shared = layer.experts ? shared * traits.experts.width : 0;
  }
}

// transformers does not read these keys of published files, in which only these values exist; one
// of them is for training.
void read_published(ConfigReader& reader) {
  reader.only("moe_gate", "topk");
  reader.only("moe_use_aux_free", true);
  reader.only("use_rmsnorm", true);
  reader.value("moe_capacity");
}

void read_ernie45_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  constexpr double kMostOfSums = 1e-6;  // A sum of chosen probabilities is larger in practice.
  traits.paired_rope = true;
  reader.only("use_bias", false);  // The head would have a bias as well.
  read_expert_counts(reader, "moe_intermediate_size", traits);
  traits.names.vectors[LayerVector::choice_bias] = "mlp.moe_statics.e_score_correction_bias";
  reader.number_or("moe_norm_min", 1e-12, 0, kMostOfSums);
  read_expert_layers(reader, traits);
  read_published(reader);
  read_guessing_layers(reader, traits, config);
  config.left_out.push_back("model.mtp_");
}

constexpr std::string_view kDefaults =
    R"({"num_key_value_heads": 2, "head_dim": 128, "tie_word_embeddings": true})";
constexpr std::string_view kDefaultsWithExperts =
    R"({"num_key_value_heads": 4, "tie_word_embeddings": true})";

}  // namespace

const Family kErnie45 = {
    "ernie4_5", "Ernie4_5ForCausalLM", read_ernie45, {.theta = 5e5}, kDefaults};
const Family kErnie45Moe = {"ernie4_5_moe",
                            "Ernie4_5_MoeForCausalLM",
                            read_ernie45_moe,
                            {.theta = 5e5},
                            kDefaultsWithExperts};

}  // namespace walsh
