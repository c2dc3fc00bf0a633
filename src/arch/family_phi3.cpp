// Phi 3, 3.5 and 4 are Llama with q, k and v in one tensor, and gate and up in one. A part of a
// head may have no rope, and long contexts have other frequencies.
#include "arch/family.h"

namespace walsh {
namespace {

void read_phi3(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.names.qkv = "self_attn.qkv_proj";
  traits.partial_rope = true;
  traits.names.gate_up = "mlp.gate_up_proj";
  const int64_t window = read_window(reader, 0);
  for (LayerTraits& layer : traits.layers)
    layer.window = window;
}

}  // namespace

const Family kPhi3 = {"phi3", "Phi3ForCausalLM", read_phi3};

}  // namespace walsh
