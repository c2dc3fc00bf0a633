// Mistral: Llama with one sliding window for all layers.
#include "arch/family.h"

namespace walsh {
namespace {

// What transformers assumes when the key is absent; null, as later Mistral models have it, means
// that there is no window.
constexpr int64_t kDefaultWindow = 4096;

void read(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  const int64_t fallback = reader.has("sliding_window") ? 0 : kDefaultWindow;
  const int64_t window = reader.integer_or("sliding_window", fallback, 1, int64_t{1} << 31);
  for (LayerTraits& layer : traits.layers)
    layer.window = window;
}

}  // namespace

const Family kMistral = {"mistral", "MistralForCausalLM", read};

}  // namespace walsh
