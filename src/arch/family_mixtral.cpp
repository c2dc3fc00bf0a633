// Mixtral is Mistral with experts in every layer; the weights of the chosen experts sum to one.
#include "arch/family.h"

namespace walsh {
namespace {

void read_mixtral(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  set_mixtral_names(traits.names);
  const int64_t window = read_window(reader, 0);
  for (LayerTraits& layer : traits.layers)
    layer.window = window;
  read_expert_counts(reader, "intermediate_size", traits);
}

}  // namespace

const Family kMixtral = {"mixtral", "MixtralForCausalLM", read_mixtral, {.theta = 1e6}};

}  // namespace walsh
