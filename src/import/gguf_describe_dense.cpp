#include <fmt/format.h>

#include <cmath>

#include "import/gguf_describe.h"

namespace walsh {
namespace {

// The file does not contain the attention scale of Gemma 2 and 3. llama.cpp uses the head
// dimension, except for the 27B models, which it recognizes by these numbers of layers.
constexpr int64_t kGemma2LayersOf27B = 46, kGemma3LayersOf27B = 62;
constexpr int64_t kGemma3Pattern = 6, kOlmo3Pattern = 4, kCohere2Pattern = 4, kExaone4Pattern = 4;

void describe_biases(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["mlp_bias"] = in_gguf_layer(m, 0, "ffn_up.bias");
}

void describe_gelu(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config.erase("hidden_act");
}

void describe_attention_scale(const GgufMetadata& m, int64_t layers_of_27b, Json& config) {
  const int64_t heads = m.require(".attention.head_count");
  const bool is_27b = m.layers() == layers_of_27b && heads > 0;
  config["query_pre_attn_scalar"] =
      is_27b ? m.require(".embedding_length") / heads : m.require(".attention.key_length");
}

// Separates the rope parameters: layers with full attention keep theirs; layers with a window have
// a base frequency of their own, unscaled.
void separate_ropes(const GgufMetadata& m, double fallback, Json& config) {
  Json whole = config.at("rope_parameters");
  const Json local = {{"rope_theta", m.number(".rope.freq_base_swa", 1).value_or(fallback)},
                      {"partial_rotary_factor", whole.at("partial_rotary_factor")},
                      {"rope_type", "default"}};
  config["rope_parameters"] = {{"full_attention", std::move(whole)}, {"sliding_attention", local}};
}

}  // namespace

bool in_gguf_layer(const GgufMetadata& m, int64_t layer, std::string_view name) {
  return m.has_tensor(fmt::format("blk.{}.{}", layer, name));
}

bool has_gguf_attention_bias(const GgufMetadata& m, int64_t layer) {
  return in_gguf_layer(m, layer, "attn_q.bias") || in_gguf_layer(m, layer, "attn_qkv.bias");
}

void copy_gguf_number(const GgufMetadata& m, std::string_view key, const char* name, Json& config) {
  if (const auto value = m.number(key)) config[name] = *value;
}

bool has_gguf_window(const GgufMetadata& m) {
  return m.uniform_integer(".attention.sliding_window").value_or(0) > 0;
}

Json gguf_layer_types(const GgufMetadata& m, int64_t pattern) {
  constexpr const char* kPattern = ".attention.sliding_window_pattern";
  const int64_t layers = m.layers();
  auto windows = m.booleans(kPattern, layers);
  if (!windows) {
    pattern = m.integer(kPattern).value_or(pattern);
    if (pattern < 0) m.refuse(kPattern, "is negative");
    windows.emplace();
    for (int64_t i = 0; i < layers; ++i)
      windows->push_back(pattern == 0 || i % pattern < pattern - 1);
  }
  Json types = Json::array();
  for (const bool window : *windows)
    types.push_back(window ? "sliding_attention" : "full_attention");
  return types;
}

void describe_gguf_llama(const GgufMetadata& m, Json& config) {
  describe_biases(m, config);
}

void describe_gguf_qwen2(const GgufMetadata&, Json& config) {
  config["use_sliding_window"] = false;
}

void describe_gguf_qwen3(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["use_sliding_window"] = false;
}

void describe_gguf_gemma(const GgufMetadata& m, Json& config) {
  describe_gelu(m, config);
}

void describe_gguf_gemma2(const GgufMetadata& m, Json& config) {
  describe_gelu(m, config);
  describe_attention_scale(m, kGemma2LayersOf27B, config);
  copy_gguf_number(m, ".attn_logit_softcapping", "attn_logit_softcapping", config);
  copy_gguf_number(m, ".final_logit_softcapping", "final_logit_softcapping", config);
  config["sliding_window"] = m.require(".attention.sliding_window");
}

void describe_gguf_gemma3(const GgufMetadata& m, Json& config) {
  constexpr double kLocalTheta = 10000;
  describe_gelu(m, config);
  describe_attention_scale(m, kGemma3LayersOf27B, config);
  copy_gguf_number(m, ".final_logit_softcapping", "final_logit_softcapping", config);
  separate_ropes(m, kLocalTheta, config);
  config["sliding_window"] = Json();
  if (!has_gguf_window(m)) {
    config["layer_types"] = Json(static_cast<size_t>(m.layers()), "full_attention");
    return;
  }
  config["sliding_window"] = m.require(".attention.sliding_window");
  config["layer_types"] = gguf_layer_types(m, kGemma3Pattern);
}

void describe_gguf_arcee(const GgufMetadata& m, Json& config) {
  describe_biases(m, config);
  config["hidden_act"] = "relu2";
}

void describe_gguf_cohere2(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  config["sliding_window"] = m.require(".attention.sliding_window");
  config["layer_types"] = gguf_layer_types(m, kCohere2Pattern);
  copy_gguf_number(m, ".logit_scale", "logit_scale", config);
}

void describe_gguf_ernie45(const GgufMetadata& m, Json& config) {
  config["use_bias"] = has_gguf_attention_bias(m, 0);
}

// llama.cpp gives a file of 64 layers, as the 32B model has, a window even if no key says so.
void describe_gguf_exaone4(const GgufMetadata& m, Json& config) {
  constexpr int64_t kLayersOf32B = 64, kWindowOf32B = 4096;
  const bool has_window = has_gguf_window(m), is_32b = m.layers() == kLayersOf32B;
  config["sliding_window"] = Json();
  if (!has_window && !is_32b) {
    config["layer_types"] = Json(static_cast<size_t>(m.layers()), "full_attention");
    return;
  }
  config["sliding_window"] = has_window ? m.require(".attention.sliding_window") : kWindowOf32B;
  config["layer_types"] = gguf_layer_types(m, kExaone4Pattern);
}

// The converter has stretched the base of the rope by the checkpoint's factor.
void describe_gguf_hunyuan(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
}

void describe_gguf_seed_oss(const GgufMetadata& m, Json& config) {
  describe_biases(m, config);
  config["attention_out_bias"] = in_gguf_layer(m, 0, "attn_output.bias");
}

void describe_gguf_phi3(const GgufMetadata& m, Json& config) {
  const int64_t window = m.uniform_integer(".attention.sliding_window").value_or(0);
  config["sliding_window"] = window == 0 ? Json() : Json(window);
}

void describe_gguf_olmo2(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
}

void describe_gguf_olmo3(const GgufMetadata& m, Json& config) {
  describe_gguf_olmo2(m, config);
  separate_ropes(m, config.at("rope_parameters").at("rope_theta").get<double>(), config);
  config["sliding_window"] = m.require(".attention.sliding_window");
  config["layer_types"] = gguf_layer_types(m, kOlmo3Pattern);
}

void describe_gguf_granite(const GgufMetadata& m, Json& config) {
  describe_biases(m, config);
  // Only models with recurrent layers have no rope.
  const bool recurrent = m.integer(".ssm.conv_kernel").has_value();
  if (m.boolean(".rope.scaling.finetuned").value_or(!recurrent) == recurrent) {
    m.refuse(".rope.scaling.finetuned",
             recurrent ? "is true: attention with rope beside recurrent layers is not supported"
                       : "is false: attention without rope is not supported");
  }
  const auto dim = config.at("head_dim").get<double>();
  // As in llama.cpp, 0 means absent.
  const auto copy = [&](std::string_view key, const char* name, double absent) {
    const double value = m.number(key).value_or(0);
    config[name] = value != 0 ? value : absent;
  };
  copy(".attention.scale", "attention_multiplier", 1 / std::sqrt(dim));
  copy(".embedding_scale", "embedding_multiplier", 1);
  copy(".residual_scale", "residual_multiplier", 1);
  copy(".logit_scale", "logits_scaling", 1);
}

void describe_gguf_glm4(const GgufMetadata& m, Json& config) {
  constexpr const char* kSections = ".rope.dimension_sections";
  config["attention_bias"] = has_gguf_attention_bias(m, 0);
  // With several axes the converter stores rows of q and k in another order.
  const GgufValue* sections = m.value(kSections);
  if (sections == nullptr) return;
  for (const int64_t section : sections->as_ints(m.where(kSections)))
    if (section != 0) m.refuse(kSections, "several axes of positions are not supported");
}

void describe_gguf_smollm3(const GgufMetadata& m, Json& config) {
  // The layers without rope have this period, which the file does not contain.
  constexpr int64_t kInterval = 4;
  describe_biases(m, config);
  config["no_rope_layer_interval"] = kInterval;
  config["use_sliding_window"] = false;
}

void describe_gguf_mistral3(const GgufMetadata& m, Json& config) {
  Json& rope = config.at("rope_parameters");
  if (rope.at("rope_type") == "yarn") {
    if (const auto scale = m.number(".rope.scaling.yarn_log_multiplier"); scale && *scale != 0) {
      rope["mscale"] = 1;
      rope["mscale_all_dim"] = *scale;
    }
  }
  const double growth = m.number(".attention.temperature_scale").value_or(0);
  if (growth == 0) return;
  rope["llama_4_scaling_beta"] = growth;
  rope["original_max_position_embeddings"] =
      m.integer(".rope.scaling.original_context_length").value_or(m.require(".context_length"));
}

}  // namespace walsh
