// OLMoE norms queries and keys over all heads together and has experts in every layer.
#include "arch/family.h"

namespace walsh {
namespace {

void read_olmoe(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qk_norm = traits.qk_norm_of_all = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  reader.only("clip_qkv", nullptr);
  read_expert_counts(reader, "intermediate_size", traits);
  traits.experts.routing.normalized = reader.boolean_or("norm_topk_prob", false);
}

}  // namespace

const Family kOlmoe = {"olmoe", "OlmoeForCausalLM", read_olmoe};

}  // namespace walsh
