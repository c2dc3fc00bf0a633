// Llama 1, 2, 3, 3.1 and later may have biases and have no sliding window.
#include "arch/family.h"

namespace walsh {
namespace {

void read_llama(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
}

}  // namespace

const Family kLlama = {"llama", "LlamaForCausalLM", read_llama};

}  // namespace walsh
