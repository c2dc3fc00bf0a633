// Seed-OSS is Llama with biases on q, k and v.
#include "arch/family.h"

namespace walsh {
namespace {

void read_seed_oss(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qkv_bias = reader.boolean_or("attention_bias", true);
  traits.o_bias = reader.boolean_or("attention_out_bias", false);
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  reader.value("residual_dropout");  // Only training uses it.
}

constexpr std::string_view kDefaults = R"({"num_key_value_heads": 8, "head_dim": 128})";

}  // namespace

const Family kSeedOss = {"seed_oss", "SeedOssForCausalLM", read_seed_oss, {}, kDefaults};

}  // namespace walsh
