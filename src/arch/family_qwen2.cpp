// Qwen 2 and 2.5 have biases on q, k and v; some layers may have a sliding window.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultMaxWindowLayers = 28;

void read_qwen2(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qkv_bias = true;
  read_qwen_windows(reader, traits);
}

}  // namespace

void read_qwen_windows(ConfigReader& reader, DecoderTraits& traits) {
  const bool enabled = reader.boolean_or("use_sliding_window", false);
  int64_t window = read_window(reader, kDefaultWindow);
  if (!enabled) window = 0;
  const int64_t first =
      reader.optional_integer("max_window_layers", kDefaultMaxWindowLayers, 0, int64_t{1} << 31);
  if (read_layer_types(reader, window, traits)) return;
  for (size_t i = static_cast<size_t>(first); i < traits.layers.size(); ++i)
    traits.layers[i].window = window;
}

const Family kQwen2 = {"qwen2", "Qwen2ForCausalLM", read_qwen2};

}  // namespace walsh
