// Gemma stores gains minus one and has GeGLU and a scaled embedding that is tied to the head.
#include <cmath>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultHeadDim = 256;  // transformers assumes this for an absent key.
constexpr double kDefaultScale = 256;
constexpr double kLargestCap = 1e6;

void read_gemma1(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  // Early files say "gelu" but mean its tanh approximation.
  if (reader.pending("hidden_act") && *reader.value("hidden_act") != "gelu" &&
      *reader.value("hidden_act") != "gelu_pytorch_tanh")
    reader.refuse("hidden_act", "not supported, expected 'gelu_pytorch_tanh'");
  read_gemma(reader, traits, config);
}

}  // namespace

float read_cap(ConfigReader& reader, const char* key, double fallback) {
  const double absent = reader.has(key) ? 0 : fallback;
  return static_cast<float>(reader.optional_number(key, absent, 1e-3, kLargestCap));
}

void read_gemma(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.gain_offset = 1;
  traits.gate_function = GateFunction::gelu_tanh;
  reader.only("hidden_activation", "gelu_pytorch_tanh");
  reader.only("hidden_act", "gelu_pytorch_tanh");
  reader.only("use_bidirectional_attention", false);
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  config.tied_head = reader.boolean_or("tie_word_embeddings", true);
  if (reader.value("head_dim") != nullptr) return;
  for (LayerTraits& layer : traits.layers)
    layer.head_dim = kDefaultHeadDim;
}

void read_gemma_blocks(ConfigReader& reader, DecoderTraits& traits) {
  traits.names.mlp_norm = "pre_feedforward_layernorm";
  traits.norms_after = true;
  const double scale = reader.number_or("query_pre_attn_scalar", kDefaultScale, 1e-3, 1e6);
  for (LayerTraits& layer : traits.layers)
    layer.scale = static_cast<float>(1 / std::sqrt(scale));
}

const Family kGemma = {"gemma", "GemmaForCausalLM", read_gemma1};

}  // namespace walsh
