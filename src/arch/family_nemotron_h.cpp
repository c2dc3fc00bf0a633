// Nemotron-H has layers of one block each: a Mamba-2 mixer, attention without rope, an MLP without
// a gate, or such experts. Each has one norm.
#include <fmt/format.h>

#include <array>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr const char *kTypes = "layers_block_type", *kPattern = "hybrid_override_pattern";

// Published files have these names, or those of transformers 5.
constexpr auto kStoredNames =
    std::to_array<NameRule>({{"backbone.embeddings.", "model.embed_tokens."},
                             {"backbone.norm_f.", "model.norm."},
                             {"backbone.", "model."},
                             {"model.embeddings.", "model.embed_tokens."},
                             {"model.norm_f.", "model.norm."}});

void set_names(TensorNames& names) {
  names.attention_norm = names.mlp_norm = "norm";
  names.q = "mixer.q_proj";
  names.k = "mixer.k_proj";
  names.v = "mixer.v_proj";
  names.o = "mixer.o_proj";
  names.up = "mixer.up_proj";
  names.down = "mixer.down_proj";
  names.router = "mixer.gate";
  names.shared = "mixer.shared_experts.";
  names.experts = "mixer.experts.";
  names.all_up = "mixer.experts.up_proj";
  names.all_down = "mixer.experts.down_proj";
  set_mamba2_names("mixer.", names);
}

// Returns what the config calls the block of a layer, as the letter of a pattern.
char letter_of(ConfigReader& reader, std::string_view kind) {
  if (is_mamba2(kind)) return 'M';
  if (is_attention(kind)) return '*';
  if (kind == "mlp") return '-';
  if (kind == "moe") return 'E';
  reader.refuse(kTypes, "expected 'mamba', 'attention', 'mlp' or 'moe'");
}

// Returns a letter for each layer: M, *, - or E.
std::string read_pattern(ConfigReader& reader, const DecoderTraits& traits) {
  std::string pattern;
  for (const std::string& kind : kinds_of_layers(reader, kTypes, traits))
    pattern += letter_of(reader, kind);
  const auto letters = reader.text(kPattern);
  if (!pattern.empty()) return pattern;
  if (!letters) reader.refuse(kTypes, "expected one entry per layer");
  if (letters->size() != traits.layers.size())
    reader.refuse(kPattern, "expected one entry per layer");
  if (letters->find_first_not_of("M*-E") != std::string::npos)
    reader.refuse(kPattern, "expected only M, *, - and E");
  return *letters;
}

void read_experts(ConfigReader& reader, DecoderTraits& traits) {
  read_expert_counts(reader, "moe_intermediate_size", traits);
  read_expert_groups(reader, 2, traits);
  ExpertTraits& e = traits.experts;
  e.routing.sigmoid = true;
  e.routing.normalized = reader.boolean_or("norm_topk_prob", true);
  traits.names.vectors[LayerVector::choice_bias] = "mixer.gate.e_score_correction_bias";
  const int64_t shared = reader.integer("moe_shared_expert_intermediate_size", 1, kMaxWidth);
  for (LayerTraits& layer : traits.layers)
    layer.shared = shared;
  reader.only("moe_latent_size", nullptr);
}

void read_blocks(ConfigReader& reader, DecoderTraits& traits) {
  const std::string pattern = read_pattern(reader, traits);
  if (pattern.find('E') != std::string::npos) read_experts(reader, traits);
  for (size_t i = 0; i < pattern.size(); ++i) {
    LayerTraits& layer = traits.layers[i];
    layer.recurrent = pattern[i] == 'M';
    layer.mixer = layer.recurrent || pattern[i] == '*';
    layer.feed_forward = !layer.mixer;
    layer.experts = pattern[i] == 'E';
    layer.rope = -1;
  }
}

// These keys describe experts, which a model may lack, or do not change what is computed.
constexpr const char* kOthers[] = {"n_routed_experts",
                                   "n_shared_experts",
                                   "moe_intermediate_size",
                                   "num_experts_per_tok",
                                   "routed_scaling_factor",
                                   "n_group",
                                   "topk_group",
                                   "norm_topk_prob",
                                   "moe_shared_expert_intermediate_size",
                                   "moe_latent_size",
                                   "moe_shared_expert_overlap",
                                   "expand",
                                   "num_logits_to_keep",
                                   "residual_in_fp32",
                                   "rescale_prenorm_residual",
                                   "hidden_dropout",
                                   "mamba_proj_bias",
                                   "mtp_layers_block_type",
                                   "mtp_hybrid_override_pattern",
                                   "num_nextn_predict_layers",
                                   "hybrid_override_pattern",
                                   "time_step_rank",
                                   "output_router_logits",
                                   "router_aux_loss_coef"};

void read_nemotron_h(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  set_names(traits.names);
  config.stored_names = kStoredNames;
  constexpr Mamba2Keys kKeys = {"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size",
                                "conv_kernel",     "use_conv_bias",  "use_bias"};
  read_mamba2(reader, kKeys, {128, 64, 8, 128}, traits);
  // transformers does not read `time_step_limit`.
  traits.delta_net.least_strength =
      static_cast<float>(reader.number_or("time_step_min", 1e-3, 0, 1));
  reader.value("time_step_limit");
  traits.delta_net.norm_eps = traits.norm_eps;
  reader.only("mamba_hidden_act", "silu");
  reader.only("mlp_hidden_act", "relu2");
  traits.ungated = true;
  traits.gate_function = GateFunction::relu;
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  read_blocks(reader, traits);
  config.left_out.push_back("mtp.");
  for (const char* key : kOthers)
    reader.value(key);
}

constexpr std::string_view kDefaults =
    R"({"head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 21504})";

}  // namespace

const Family kNemotronH = {"nemotron_h", "NemotronHForCausalLM", read_nemotron_h, {},
                           kDefaults,    "layer_norm_epsilon"};

}  // namespace walsh
