#include "import/gguf_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "import/gguf_describe.h"
#include "io/printable.h"

namespace walsh {
namespace {

// Most architectures share these names; attn_q and ffn_up may have biases as well.
constexpr GgufName kCommon[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_gate_up_exps", "mlp.experts.*.gate_proj", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
// These are norms before and after both blocks.
constexpr GgufName kFourNorms[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                   {"post_attention_norm", "post_attention_layernorm"},
                                   {"post_ffw_norm", "post_feedforward_layernorm"}};
// These are norms after the blocks only.
constexpr GgufName kNormsAfter[] = {{"post_attention_norm", "post_attention_layernorm"},
                                    {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr GgufName kGemma4Names[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"layer_output_scale.weight", "layer_scalar"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_exps", "experts.*.gate_proj"},
    {"ffn_up_exps", "experts.*.up_proj"},
    {"ffn_gate_up_exps", "experts.*.gate_proj", "experts.*.up_proj"},
    {"ffn_down_exps", "experts.*.down_proj"}};
constexpr GgufName kHunYuanNames[] = {{"attn_q_norm", "self_attn.query_layernorm"},
                                      {"attn_k_norm", "self_attn.key_layernorm"}};
constexpr GgufName kLlama4Names[] = {{"ffn_gate", "feed_forward.gate_proj"},
                                     {"ffn_up", "feed_forward.up_proj"},
                                     {"ffn_down", "feed_forward.down_proj"},
                                     {"ffn_gate_inp", "feed_forward.router"},
                                     {"ffn_gate_exps", "feed_forward.experts.*.gate_proj"},
                                     {"ffn_up_exps", "feed_forward.experts.*.up_proj"},
                                     {"ffn_down_exps", "feed_forward.experts.*.down_proj"},
                                     {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
                                     {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
                                     {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"}};
constexpr GgufName kPhi3Names[] = {{"attn_qkv", "self_attn.qkv_proj"},
                                   {"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufName kGlm4Names[] = {{"ffn_up", "mlp.gate_up_proj"},
                                   {"post_attention_norm", "post_self_attn_layernorm"},
                                   {"post_ffw_norm", "post_mlp_layernorm"}};
constexpr GgufName kGlm4MoeNames[] = {{"post_attention_norm", "post_attention_layernorm"},
                                      {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                      {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                      {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};
constexpr GgufName kDeepseekNames[] = {{"attn_q_a", "self_attn.q_a_proj"},
                                       {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                       {"attn_q_b", "self_attn.q_b_proj"},
                                       {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                       {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                       {"attn_kv_b", "self_attn.kv_b_proj"},
                                       {"attn_k_b", "self_attn.k_b_proj"},
                                       {"attn_v_b", "self_attn.v_b_proj"},
                                       {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                       {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                       {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};
constexpr GgufName kErnieMoeNames[] = {
    {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};
constexpr GgufName kLfm2Names[] = {{"attn_norm", "operator_norm"},
                                   {"attn_output", "self_attn.out_proj"},
                                   {"attn_q_norm", "self_attn.q_layernorm"},
                                   {"attn_k_norm", "self_attn.k_layernorm"},
                                   {"shortconv.in_proj", "conv.in_proj"},
                                   {"shortconv.conv", "conv.conv"},
                                   {"shortconv.out_proj", "conv.out_proj"},
                                   {"ffn_norm", "ffn_norm"},
                                   {"ffn_gate", "feed_forward.w1"},
                                   {"ffn_up", "feed_forward.w3"},
                                   {"ffn_down", "feed_forward.w2"},
                                   {"ffn_gate_inp", "feed_forward.gate"},
                                   {"exp_probs_b.bias", "feed_forward.expert_bias"},
                                   {"ffn_gate_exps", "feed_forward.experts.*.w1"},
                                   {"ffn_up_exps", "feed_forward.experts.*.w3"},
                                   {"ffn_down_exps", "feed_forward.experts.*.w2"}};
constexpr GgufName kGptOssNames[] = {{"post_attention_norm", "post_attention_layernorm"},
                                     {"ffn_gate_inp", "mlp.router"}};
constexpr GgufName kGraniteMoeNames[] = {{"ffn_gate_inp", "block_sparse_moe.router.layer"},
                                         {"ffn_gate_exps", "block_sparse_moe.experts.*.gate_proj"},
                                         {"ffn_up_exps", "block_sparse_moe.experts.*.up_proj"},
                                         {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj"}};
constexpr GgufName kGraniteHybridNames[] = {
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d"},
    {"ssm_dt.bias", "mamba.dt_bias"},
    {"ssm_a", "mamba.A_log"},
    {"ssm_d", "mamba.D"},
    {"ssm_norm", "mamba.norm"},
    {"ssm_out", "mamba.out_proj"},
    {"ffn_gate", "shared_mlp.gate_proj"},
    {"ffn_up", "shared_mlp.up_proj"},
    {"ffn_down", "shared_mlp.output_linear"},
    {"ffn_gate_shexp", "shared_mlp.gate_proj"},
    {"ffn_up_shexp", "shared_mlp.up_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.gate_proj"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.up_proj"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj"}};
constexpr GgufName kMixtralNames[] = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                      {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                      {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                      {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}};
constexpr GgufName kMiniMaxNames[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}};
constexpr GgufName kSeedOssNames[] = {{"post_attention_norm", "post_attention_layernorm"}};
constexpr GgufName kDeltaNetNames[] = {{"post_attention_norm", "post_attention_layernorm"},
                                       {"attn_qkv", "linear_attn.in_proj_qkv"},
                                       {"attn_gate", "linear_attn.in_proj_z"},
                                       {"ssm_in", "linear_attn.in_proj_qkvz"},
                                       {"ssm_ba", "linear_attn.in_proj_ba"},
                                       {"ssm_alpha", "linear_attn.in_proj_a"},
                                       {"ssm_beta", "linear_attn.in_proj_b"},
                                       {"ssm_conv1d", "linear_attn.conv1d"},
                                       {"ssm_norm", "linear_attn.norm"},
                                       {"ssm_out", "linear_attn.out_proj"}};

bool has_experts(const GgufMetadata& m) {
  return m.integer(".expert_count").value_or(0) != 0;
}

bool has_sigmoid_routing(const GgufMetadata& m) {
  constexpr int64_t kSigmoid = 2;
  return m.integer(".expert_gating_func").value_or(0) == kSigmoid;
}

constexpr GgufFamily kFamilies[] = {
    {"arcee", "arcee", "ArceeForCausalLM", {}, true, 0, describe_gguf_arcee},
    {.architecture = "cohere2",
     .model_type = "cohere2",
     .model_class = "Cohere2ForCausalLM",
     .names = {},
     .describe = describe_gguf_cohere2,
     .layer_norms = true},
    {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", kDeepseekNames, false, 0,
     describe_gguf_deepseek3, has_sigmoid_routing},
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", kDeepseekNames, false, 0,
     describe_gguf_deepseek2},
    {"ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", {}, false, 0, describe_gguf_ernie45},
    {"ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", kErnieMoeNames, false, 0,
     describe_gguf_ernie45_moe},
    {"exaone4", "exaone4", "Exaone4ForCausalLM", kNormsAfter, false, 0, describe_gguf_exaone4},
    {"gemma", "gemma", "GemmaForCausalLM", {}, false, 1, describe_gguf_gemma},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", kFourNorms, false, 1, describe_gguf_gemma2},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", kFourNorms, false, 1, describe_gguf_gemma3},
    {.architecture = "gemma4",
     .model_type = "gemma4_text",
     .model_class = "Gemma4ForCausalLM",
     .names = kGemma4Names,
     .describe = describe_gguf_gemma4,
     .layers_differ = true},
    {"glm4", "glm4", "Glm4ForCausalLM", kGlm4Names, false, 0, describe_gguf_glm4},
    {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", kGlm4MoeNames, false, 0, describe_gguf_glm4_moe},
    {"gpt-oss", "gpt_oss", "GptOssForCausalLM", kGptOssNames, false, 0, describe_gguf_gpt_oss},
    {"granite", "granite", "GraniteForCausalLM", {}, true, 0, describe_gguf_granite},
    {.architecture = "granitehybrid",
     .model_type = "granitemoehybrid",
     .model_class = "GraniteMoeHybridForCausalLM",
     .names = kGraniteHybridNames,
     .paired_heads = true,
     .describe = describe_gguf_granite_hybrid,
     .layers_differ = true},
    {"granitemoe", "granitemoe", "GraniteMoeForCausalLM", kGraniteMoeNames, true, 0,
     describe_gguf_granite_moe},
    {"hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", kHunYuanNames, false, 0,
     describe_gguf_hunyuan},
    {.architecture = "lfm2",
     .model_type = "lfm2",
     .model_class = "Lfm2ForCausalLM",
     .names = kLfm2Names,
     .describe = describe_gguf_lfm2,
     .layers_differ = true},
    {.architecture = "lfm2moe",
     .model_type = "lfm2_moe",
     .model_class = "Lfm2MoeForCausalLM",
     .names = kLfm2Names,
     .describe = describe_gguf_lfm2_moe,
     .layers_differ = true},
    {"llama", "mixtral", "MixtralForCausalLM", kMixtralNames, true, 0, describe_gguf_mixtral,
     has_experts},
    {"llama", "llama", "LlamaForCausalLM", {}, true, 0, describe_gguf_llama},
    {"llama4", "llama4_text", "Llama4ForCausalLM", kLlama4Names, false, 0, describe_gguf_llama4},
    {"minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", kMiniMaxNames, false, 0,
     describe_gguf_minimax_m2},
    {"mistral3", "ministral3", "Ministral3ForCausalLM", {}, true, 0, describe_gguf_mistral3},
    {"olmo2", "olmo3", "Olmo3ForCausalLM", kNormsAfter, false, 0, describe_gguf_olmo3,
     has_gguf_window},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", kNormsAfter, false, 0, describe_gguf_olmo2},
    {"olmoe", "olmoe", "OlmoeForCausalLM", {}, false, 0, describe_gguf_olmoe},
    {"phi3", "phi3", "Phi3ForCausalLM", kPhi3Names, false, 0, describe_gguf_phi3},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", {}, false, 0, describe_gguf_qwen2},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", {}, false, 0, describe_gguf_qwen2_moe},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", {}, false, 0, describe_gguf_qwen3},
    {"qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", kDeltaNetNames, false, 1,
     describe_gguf_qwen35},
    {"qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", kDeltaNetNames, false, 1,
     describe_gguf_qwen35_moe},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", {}, false, 0, describe_gguf_qwen3_moe},
    {"qwen3next", "qwen3_next", "Qwen3NextForCausalLM", kDeltaNetNames, false, 1,
     describe_gguf_qwen3_next},
    {"seed_oss", "seed_oss", "SeedOssForCausalLM", kSeedOssNames, false, 0, describe_gguf_seed_oss},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", {}, true, 0, describe_gguf_smollm3},
};

const GgufName* find(std::span<const GgufName> names, std::string_view name) {
  const auto place = std::find_if(names.begin(), names.end(),
                                  [&](const GgufName& entry) { return entry.gguf == name; });
  return place == names.end() ? nullptr : &*place;
}

}  // namespace

std::span<const GgufFamily> gguf_families() {
  return kFamilies;
}

const GgufFamily& gguf_family(const GgufMetadata& metadata) {
  std::string known;
  std::string_view last;
  for (const GgufFamily& family : kFamilies) {
    if (family.architecture == metadata.architecture() &&
        (family.suits == nullptr || family.suits(metadata))) {
      return family;
    }
    if (family.architecture == last) continue;
    known += known.empty() ? "" : ", ";
    known += family.architecture;
    last = family.architecture;
  }
  metadata.refuse("general.architecture",
                  fmt::format("\"{}\" is not read; known are {}",
                              printable(metadata.architecture(), 48), known));
}

const GgufName* gguf_layer_name(const GgufFamily& family, std::string_view name) {
  const GgufName* found = find(family.names, name);
  return found != nullptr ? found : find(kCommon, name);
}

}  // namespace walsh
