// Gemma 2 is Gemma with norms before and after both blocks, capped logits and a window in every
// second layer.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr double kDefaultLogitCap = 50, kDefaultFinalCap = 30;

void read_gemma2(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_gemma(reader, traits, config);
  read_gemma_blocks(reader, traits);
  config.logit_cap = read_cap(reader, "final_logit_softcapping", kDefaultFinalCap);
  const float cap = read_cap(reader, "attn_logit_softcapping", kDefaultLogitCap);
  for (LayerTraits& layer : traits.layers)
    layer.logit_cap = cap;
  const int64_t window = read_window(reader, kDefaultWindow);
  if (read_layer_types(reader, window, traits)) return;
  for (size_t i = 0; i < traits.layers.size(); i += 2)
    traits.layers[i].window = window;
}

}  // namespace

const Family kGemma2 = {"gemma2", "Gemma2ForCausalLM", read_gemma2};

}  // namespace walsh
