#include <fmt/format.h>

#include "import/gguf_describe.h"

namespace walsh {
namespace {

enum GatingFunction : int64_t { kNotSaid = 0, kSoftmax = 1, kSigmoid = 2 };

void describe_counts(const GgufMetadata& m, Json& config) {
  config["num_experts"] = m.require(".expert_count");
  config["num_experts_per_tok"] = m.require(".expert_used_count");
}

void expect_gating(const GgufMetadata& m, GatingFunction expected) {
  const int64_t found = m.integer(".expert_gating_func").value_or(kNotSaid);
  if (found != kNotSaid && found != expected) {
    m.refuse(".expert_gating_func",
             fmt::format("is {}, expected {}", found, static_cast<int64_t>(expected)));
  }
}

// Returns the width of an expert; if the file lacks it, llama.cpp divides the width of the MLP.
int64_t expert_width(const GgufMetadata& m) {
  if (const auto width = m.uniform_integer(".expert_feed_forward_length"); width && *width != 0)
    return *width;
  const int64_t used = m.require(".expert_used_count");
  if (used <= 0) m.refuse(".expert_used_count", "is not positive");
  return m.require(".feed_forward_length") / used;
}

// Lists layers without a router, which have a dense MLP.
void describe_dense_layers(const GgufMetadata& m, Json& config) {
  Json dense = Json::array();
  for (int64_t i = 0; i < m.layers(); ++i)
    if (!in_gguf_layer(m, i, "ffn_gate_inp.weight")) dense.push_back(i);
  config["mlp_only_layers"] = std::move(dense);
}

// Describes the experts of Qwen's families. If `shared`, there is one more expert, which every
// token passes.
void describe_qwen_experts(const GgufMetadata& m, bool shared, Json& config) {
  expect_gating(m, kSoftmax);
  describe_counts(m, config);
  describe_dense_layers(m, config);
  config["moe_intermediate_size"] = expert_width(m);
  if (!shared) return;
  const int64_t width = m.integer(".expert_shared_feed_forward_length").value_or(0);
  config["shared_expert_intermediate_size"] =
      width != 0 ? width : m.require(".feed_forward_length");
}

// Returns whether the weights of the chosen experts are normalized to a sum of one.
bool normalized(const GgufMetadata& m, bool usual) {
  return m.boolean(".expert_weights_norm").value_or(usual);
}

// Describes the heads of delta nets, which replace attention in some layers.
void describe_delta_nets(const GgufMetadata& m, Json& config) {
  const int64_t heads = m.require(".ssm.time_step_rank"), width = m.require(".ssm.inner_size");
  if (heads <= 0 || width % heads != 0)
    m.refuse(".ssm.time_step_rank", "is no divisor of ssm.inner_size");
  config["linear_num_value_heads"] = heads;
  config["linear_value_head_dim"] = width / heads;
  config["linear_num_key_heads"] = m.require(".ssm.group_count");
  config["linear_key_head_dim"] = m.require(".ssm.state_size");
  config["linear_conv_kernel_dim"] = m.require(".ssm.conv_kernel");
  const int64_t layers = m.layers();
  auto recurrent = m.booleans(".attention.recurrent_layers", layers);
  if (!recurrent) {
    constexpr int64_t kInterval = 4;  // llama.cpp takes it for files without the key
    const int64_t interval = m.integer(".full_attention_interval").value_or(kInterval);
    if (interval <= 0) m.refuse(".full_attention_interval", "is not positive");
    recurrent.emplace();
    for (int64_t i = 0; i < layers; ++i)
      recurrent->push_back((i + 1) % interval != 0);
  }
  Json types = Json::array();
  bool bias = false;
  for (int64_t i = 0; i < layers; ++i) {
    const bool is_recurrent = (*recurrent)[static_cast<size_t>(i)];
    types.push_back(is_recurrent ? "linear_attention" : "full_attention");
    bias = bias || (!is_recurrent && has_gguf_attention_bias(m, i));
  }
  config["layer_types"] = std::move(types);
  config["attention_bias"] = bias;
}

// Lists the types of layers: those without KV heads have the recurrent one.
void describe_layers(const GgufMetadata& m, const char* recurrent, const char* attention,
                     Json& config) {
  constexpr const char* kHeads = ".attention.head_count_kv";
  Json types = Json::array();
  int64_t heads = 0;
  const std::vector<int64_t> all = m.layer_integers(kHeads);
  for (int64_t i = 0; i < m.layers(); ++i) {
    const int64_t own = all[static_cast<size_t>(i)];
    types.push_back(own == 0 ? recurrent : attention);
    if (own == 0) continue;
    if (heads != 0 && own != heads) m.refuse(kHeads, "differs between layers with attention");
    heads = own;
  }
  config["layer_types"] = std::move(types);
  config["num_key_value_heads"] = heads == 0 ? config.at("num_attention_heads") : Json(heads);
}

bool in_any_gguf_layer(const GgufMetadata& m, std::string_view name) {
  for (int64_t i = 0; i < m.layers(); ++i)
    if (in_gguf_layer(m, i, name)) return true;
  return false;
}

// Describes the Mamba-2 mixers of Granite 4.
void describe_mamba2(const GgufMetadata& m, Json& config) {
  const int64_t heads = m.require(".ssm.time_step_rank"), width = m.require(".ssm.inner_size");
  if (heads <= 0 || width % heads != 0)
    m.refuse(".ssm.time_step_rank", "is no divisor of ssm.inner_size");
  const int64_t hidden = m.require(".embedding_length");
  if (hidden <= 0 || width % hidden != 0)
    m.refuse(".ssm.inner_size", "is no multiple of embedding_length");
  config["mamba_expand"] = width / hidden;
  config["mamba_n_heads"] = heads;
  config["mamba_d_head"] = width / heads;
  config["mamba_n_groups"] = m.require(".ssm.group_count");
  config["mamba_d_state"] = m.require(".ssm.state_size");
  config["mamba_d_conv"] = m.require(".ssm.conv_kernel");
  config["mamba_conv_bias"] = in_any_gguf_layer(m, "ssm_conv1d.bias");
  config["mamba_proj_bias"] = in_any_gguf_layer(m, "ssm_in.bias");
}

// Describes the layers of LFM2: those without KV heads have a short convolution.
void describe_short_convolutions(const GgufMetadata& m, Json& config) {
  config["norm_eps"] = config.at("rms_norm_eps");
  config.erase("rms_norm_eps");
  config["conv_L_cache"] = m.require(".shortconv.l_cache");
  describe_layers(m, "conv", "full_attention", config);
  config["conv_bias"] = in_any_gguf_layer(m, "shortconv.conv.bias");
  config["intermediate_size"] = m.require(".feed_forward_length");
}

// Describes the latents of DeepSeek-V2 and V3.
void describe_latents(const GgufMetadata& m, Json& config) {
  describe_counts(m, config);
  const int64_t rope_dim = config.at("head_dim").get<int64_t>();
  const int64_t rank = m.require(".attention.kv_lora_rank");
  config["kv_lora_rank"] = rank;
  const int64_t query_rank = m.integer(".attention.q_lora_rank").value_or(0);
  config["q_lora_rank"] = query_rank != 0 ? Json(query_rank) : Json();
  config["qk_rope_head_dim"] = rope_dim;
  // Files that store keys and values together have these lengths without "_mla".
  const auto length = [&](const char* apart, const char* whole) {
    return m.integer(apart) ? m.require(apart) : m.require(whole);
  };
  config["qk_nope_head_dim"] =
      length(".attention.key_length_mla", ".attention.key_length") - rope_dim;
  config["v_head_dim"] = length(".attention.value_length_mla", ".attention.value_length");
  config["num_key_value_heads"] = config.at("num_attention_heads");
  config["attention_bias"] = in_gguf_layer(m, 0, "attn_kv_a_mqa.bias");
  config["moe_intermediate_size"] = expert_width(m);
  config["n_shared_experts"] = m.require(".expert_shared_count");
  config["first_k_dense_replace"] = m.integer(".leading_dense_block_count").value_or(0);
  config["norm_topk_prob"] = normalized(m, false);
  config["n_group"] = m.integer(".expert_group_count").value_or(1);
  config["topk_group"] = m.integer(".expert_group_used_count").value_or(1);
  const double scale = m.number(".expert_weights_scale").value_or(0);
  config["routed_scaling_factor"] = scale != 0 ? scale : 1;
  // The converter writes a tenth of mscale_all_dim, and omits mscale, which is equal in all
  // published models.
  Json& rope = config.at("rope_parameters");
  const double tenth = m.number(".rope.scaling.yarn_log_multiplier").value_or(0);
  if (rope.at("rope_type") == "yarn" && tenth != 0)
    rope["mscale"] = rope["mscale_all_dim"] = tenth * 10;
}

}  // namespace

void describe_gguf_deepseek2(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSoftmax);
  describe_latents(m, config);
  const bool groups = config.at("n_group") != 1;
  config["topk_method"] = groups ? "group_limited_greedy" : "greedy";
  config["mlp_bias"] = in_gguf_layer(m, 0, "ffn_up.bias");
}

void describe_gguf_deepseek3(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSigmoid);
  describe_latents(m, config);
}

void describe_gguf_mixtral(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSoftmax);
  describe_counts(m, config);
}

void describe_gguf_minimax_m2(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSigmoid);
  describe_counts(m, config);
  config["intermediate_size"] = expert_width(m);
}

// Chunks, the growth of queries and the layers without rope are not in the file: they are those of
// the published models, whose layers have chunks and rope except every fourth. The published model
// of 128 experts has no norm of queries and keys.
void describe_gguf_llama4(const GgufMetadata& m, Json& config) {
  constexpr int64_t kPattern = 4, kChunk = 8192, kFloor = 8192, kExpertsWithoutNorm = 128;
  constexpr double kGrowth = 0.1;
  describe_counts(m, config);
  config["intermediate_size_mlp"] = m.require(".feed_forward_length");
  config["intermediate_size"] = expert_width(m);
  config["interleave_moe_layer_step"] = m.require(".interleave_moe_layer_step");
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["use_qk_norm"] = config.at("num_experts") != kExpertsWithoutNorm;
  // A window of 0 stands for attention to all positions, with rope in all layers.
  const bool chunked = m.uniform_integer(".attention.sliding_window").value_or(kChunk) != 0;
  config["attention_chunk_size"] = kChunk;
  config["attn_temperature_tuning"] = chunked;
  config["attn_scale"] = kGrowth;
  config["floor_scale"] = kFloor;
  Json types = Json::array(), rope = Json::array();
  for (const Json& type : gguf_layer_types(m, kPattern)) {
    const bool whole = !chunked || type == "full_attention";
    types.push_back(whole ? "full_attention" : "chunked_attention");
    rope.push_back(chunked && whole ? 0 : 1);
  }
  config["layer_types"] = std::move(types);
  config["no_rope_layers"] = std::move(rope);
}

void describe_gguf_ernie45_moe(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSoftmax);
  config["moe_num_experts"] = m.require(".expert_count");
  config["moe_k"] = m.require(".expert_used_count");
  config["moe_intermediate_size"] = expert_width(m);
  config["moe_num_shared_experts"] = m.integer(".expert_shared_count").value_or(0);
  config["moe_layer_interval"] = m.integer(".interleave_moe_layer_step").value_or(1);
  config["moe_layer_start_index"] = m.integer(".leading_dense_block_count").value_or(0);
  // The file does not say which layer is the last one with experts.
  int64_t last = m.layers() - 1;
  while (last > 0 && !in_gguf_layer(m, last, "ffn_gate_inp.weight"))
    --last;
  config["moe_layer_end_index"] = last;
}

void describe_gguf_qwen2_moe(const GgufMetadata& m, Json& config) {
  describe_qwen_experts(m, true, config);
  config["qkv_bias"] = has_gguf_attention_bias(m, 0);
  config["use_sliding_window"] = false;
  config["norm_topk_prob"] = normalized(m, false);
}

void describe_gguf_qwen3_moe(const GgufMetadata& m, Json& config) {
  describe_qwen_experts(m, false, config);
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["use_sliding_window"] = false;
  config["norm_topk_prob"] = normalized(m, true);
}

void describe_gguf_olmoe(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSoftmax);
  describe_counts(m, config);
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["norm_topk_prob"] = normalized(m, false);
}

void describe_gguf_granite_moe(const GgufMetadata& m, Json& config) {
  describe_gguf_granite(m, config);
  config.erase("mlp_bias");
  expect_gating(m, kSoftmax);
  describe_counts(m, config);
  if (m.integer(".expert_shared_feed_forward_length").value_or(0) != 0)
    m.refuse(".expert_shared_feed_forward_length", "shared experts are not supported for Granite");
}

void describe_gguf_granite_hybrid(const GgufMetadata& m, Json& config) {
  describe_gguf_granite(m, config);
  config.erase("mlp_bias");
  config["attention_bias"] = in_any_gguf_layer(m, "attn_q.bias");
  config["position_embedding_type"] = "nope";
  describe_layers(m, "mamba", "attention", config);
  describe_mamba2(m, config);
  const int64_t width = m.require(".feed_forward_length");
  const int64_t shared = m.integer(".expert_shared_feed_forward_length").value_or(0);
  config["intermediate_size"] = width;
  config["shared_intermediate_size"] = shared != 0 ? shared : width;
  const int64_t experts = m.integer(".expert_count").value_or(0);
  config["num_local_experts"] = experts;
  if (experts == 0) return;
  expect_gating(m, kSoftmax);
  config["num_experts_per_tok"] = m.require(".expert_used_count");
}

void describe_gguf_gpt_oss(const GgufMetadata& m, Json& config) {
  constexpr int64_t kPattern = 2;
  expect_gating(m, kSoftmax);
  describe_counts(m, config);
  config["intermediate_size"] = expert_width(m);
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["sliding_window"] = m.require(".attention.sliding_window");
  config["layer_types"] = gguf_layer_types(m, kPattern);
  // In these models the frequencies that yarn leaves alone are not rounded to whole numbers.
  Json& rope = config.at("rope_parameters");
  if (rope.at("rope_type") == "yarn") rope["truncate"] = false;
}

void describe_gguf_glm4_moe(const GgufMetadata& m, Json& config) {
  expect_gating(m, kSigmoid);
  describe_counts(m, config);
  config["moe_intermediate_size"] = expert_width(m);
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["use_qk_norm"] = in_gguf_layer(m, 0, "attn_q_norm.weight");
  config["n_group"] = m.integer(".expert_group_count").value_or(1);
  config["topk_group"] = m.integer(".expert_group_used_count").value_or(1);
  config["n_shared_experts"] = m.require(".expert_shared_count");
  config["first_k_dense_replace"] = m.integer(".leading_dense_block_count").value_or(0);
  config["norm_topk_prob"] = normalized(m, false);
  const double scale = m.number(".expert_weights_scale").value_or(0);
  config["routed_scaling_factor"] = scale != 0 ? scale : 1;
}

void describe_gguf_lfm2(const GgufMetadata& m, Json& config) {
  describe_short_convolutions(m, config);
  config["block_auto_adjust_ff_dim"] = false;
}

void describe_gguf_lfm2_moe(const GgufMetadata& m, Json& config) {
  describe_short_convolutions(m, config);
  expect_gating(m, kSigmoid);
  describe_counts(m, config);
  config["moe_intermediate_size"] = expert_width(m);
  config["num_dense_layers"] = m.integer(".leading_dense_block_count").value_or(0);
  config["use_expert_bias"] = in_gguf_layer(m, m.layers() - 1, "exp_probs_b.bias");
  config["norm_topk_prob"] = normalized(m, true);
  const double scale = m.number(".expert_weights_scale").value_or(0);
  config["routed_scaling_factor"] = scale != 0 ? scale : 1;
}

void describe_gguf_qwen35(const GgufMetadata& m, Json& config) {
  describe_delta_nets(m, config);
}

void describe_gguf_qwen35_moe(const GgufMetadata& m, Json& config) {
  describe_delta_nets(m, config);
  describe_qwen_experts(m, true, config);
}

void describe_gguf_qwen3_next(const GgufMetadata& m, Json& config) {
  describe_gguf_qwen35_moe(m, config);
  config["norm_topk_prob"] = normalized(m, true);
}

}  // namespace walsh
