// OLMo 2 and 3 have norms after both blocks and none before; queries and keys are normed over all
// heads together. OLMo 3 has a window in all layers except every fourth one; the layers with a
// window have unscaled rope.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kPattern = 4;

void read_olmo2(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.names.attention_norm = traits.names.mlp_norm = "";
  traits.norms_after = true;
  traits.qk_norm = traits.qk_norm_of_all = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
}

void read_olmo3(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_olmo2(reader, traits, config);
  const int64_t window = read_window(reader, kDefaultWindow);
  if (read_layer_types(reader, window, traits)) return;
  set_window_pattern(window, kPattern, traits);
}

}  // namespace

const Family kOlmo2 = {"olmo2", "Olmo2ForCausalLM", read_olmo2};
const Family kOlmo3 = {"olmo3", "Olmo3ForCausalLM", read_olmo3, {.theta = 5e5, .per_kind = true}};

}  // namespace walsh
