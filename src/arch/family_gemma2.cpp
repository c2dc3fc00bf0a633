// Gemma 2: norms before and behind both blocks, gains stored minus one, a scaled embedding, GeGLU,
// capped logits, a window in every second layer.
#include <cmath>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultWindow = 4096;  // transformers' defaults for absent keys
constexpr int64_t kDefaultHeadDim = 256;
constexpr double kDefaultScale = 256, kDefaultLogitCap = 50, kDefaultFinalCap = 30;
constexpr double kLargestCap = 1e6;

// Null means that there is no cap.
float read_cap(ConfigReader& reader, const char* key, double fallback) {
  const double absent = reader.has(key) ? 0 : fallback;
  return static_cast<float>(reader.number_or(key, absent, 1e-3, kLargestCap));
}

void read(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.names.mlp_norm = "pre_feedforward_layernorm";
  traits.norms_after = true;
  traits.gain_offset = 1;
  traits.gate_function = GateFunction::gelu_tanh;
  reader.only("hidden_activation", "gelu_pytorch_tanh");
  reader.only("hidden_act", "gelu_pytorch_tanh");
  reader.only("use_bidirectional_attention", false);
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  config.logit_cap = read_cap(reader, "final_logit_softcapping", kDefaultFinalCap);
  config.tied_head = reader.boolean_or("tie_word_embeddings", true);
  const float cap = read_cap(reader, "attn_logit_softcapping", kDefaultLogitCap);
  const double scale = reader.number_or("query_pre_attn_scalar", kDefaultScale, 1e-3, 1e6);
  const bool has_dim = reader.value("head_dim") != nullptr;
  const int64_t fallback = reader.has("sliding_window") ? 0 : kDefaultWindow;
  const int64_t window = reader.integer_or("sliding_window", fallback, 1, int64_t{1} << 31);
  for (LayerTraits& layer : traits.layers) {
    if (!has_dim) layer.head_dim = kDefaultHeadDim;
    layer.logit_cap = cap;
    layer.attention_scale = static_cast<float>(1 / std::sqrt(scale));
  }
  if (read_layer_types(reader, window, traits)) return;
  for (size_t i = 0; i < traits.layers.size(); i += 2)
    traits.layers[i].window = window;
}

}  // namespace

const Family kGemma2 = {"gemma2", "Gemma2ForCausalLM", read};

}  // namespace walsh
