// GPT-OSS has experts with biases and clamped gates, and attention with sinks and, in every second
// layer, a window. Checkpoints have all experts of a layer in one tensor, with gates and ups
// interleaved, in a plain type or in MXFP4.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kGptOssWindow = 128;  // transformers assumes this for an absent key.
constexpr int64_t kGptOssHeadDim = 64;
constexpr double kDefaultSlope = 1.702, kDefaultLimit = 7;

void read_gpt_oss(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  TensorNames& names = traits.names;
  names.router = "mlp.router";
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", true);
  names.vectors[LayerVector::sinks] = "self_attn.sinks";
  traits.gate_function = GateFunction::clamped_silu;
  traits.gate_slope =
      static_cast<float>(reader.optional_number("swiglu_alpha", kDefaultSlope, 1e-3, 1e3));
  traits.gate_limit =
      static_cast<float>(reader.optional_number("swiglu_limit", kDefaultLimit, 1e-3, 1e6));
  const bool has_dim = reader.value("head_dim") != nullptr;
  const int64_t window = read_window(reader, kGptOssWindow);
  for (LayerTraits& layer : traits.layers)
    if (!has_dim) layer.head_dim = kGptOssHeadDim;
  if (!read_layer_types(reader, window, traits)) {
    for (size_t i = 0; i < traits.layers.size(); i += 2)
      traits.layers[i].window = window;
  }
  read_expert_counts(reader, "intermediate_size", traits);
  // These keys repeat what other keys say.
  for (const char* key : {"experts_per_token", "initial_context_length"})
    reader.value(key);
  traits.experts.router_bias = traits.experts.bias = true;
  traits.experts.order = ExpertOrder::interleaved;
}

}  // namespace

const Family kGptOss = {
    "gpt_oss", "GptOssForCausalLM", read_gpt_oss, {.theta = 150000, .parameters = R"({
    "rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
    "original_max_position_embeddings": 4096})"}};

}  // namespace walsh
