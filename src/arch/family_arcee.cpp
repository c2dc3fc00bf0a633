// Arcee is Llama with an MLP that has no gate: down(max(up(x), 0)^2).
#include "arch/family.h"

namespace walsh {
namespace {

void read_arcee(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  traits.mlp_bias = reader.boolean_or("mlp_bias", false);
  reader.only("hidden_act", "relu2");
  traits.ungated = true;
  traits.gate_function = GateFunction::relu;
}

}  // namespace

const Family kArcee = {"arcee", "ArceeForCausalLM", read_arcee};

}  // namespace walsh
