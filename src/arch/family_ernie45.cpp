// ERNIE 4.5, dense: Llama with neighbours in a head rotated together.
#include "arch/family.h"

namespace walsh {
namespace {

void read_ernie45(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.paired_rope = true;
  traits.qkv_bias = traits.o_bias = traits.mlp_bias = reader.boolean_or("use_bias", false);
}

constexpr std::string_view kDefaults =
    R"({"num_key_value_heads": 2, "head_dim": 128, "tie_word_embeddings": true})";

}  // namespace

const Family kErnie45 = {
    "ernie4_5", "Ernie4_5ForCausalLM", read_ernie45, {.theta = 5e5}, kDefaults};

}  // namespace walsh
