// Llama 1, 2, 3, 3.1 and later: optional biases, no sliding window.
#include "model/family.h"

namespace walsh {
namespace {

void read(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.o_bias = reader.boolean_or("attention_bias", false);
  config.mlp_bias = reader.boolean_or("mlp_bias", false);
}

}  // namespace

const Family kLlama = {"llama", "LlamaForCausalLM", read, &kLlamaNames};

}  // namespace walsh
