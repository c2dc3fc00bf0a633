// Qwen 3 has RMSNorm on every query and key head; head_dim is independent of the hidden size. The
// text part of Qwen3-VL is a Qwen 3 whose rope has three axes.
#include "arch/family.h"

namespace walsh {
namespace {

// transformers assumes this if the key is absent, instead of hidden / heads.
constexpr int64_t kDefaultHeadDim = 128;

void read_qwen3_vl(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qk_norm = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  for (LayerTraits& layer : traits.layers)
    if (reader.value("head_dim") == nullptr) layer.head_dim = kDefaultHeadDim;
}

void read_qwen3(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_qwen3_vl(reader, traits, config);
  read_qwen_windows(reader, traits);
}

}  // namespace

const Family kQwen3 = {"qwen3", "Qwen3ForCausalLM", read_qwen3};
const Family kQwen3Vl = {
    "qwen3_vl_text", "Qwen3VLTextModel", read_qwen3_vl, {.theta = 5e5, .sections = {24, 20, 20}}};

}  // namespace walsh
