// Qwen 2 with experts has a shared expert, gated by a sigmoid, besides the routed ones.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultMaxWindowLayers = 28;

// Gives windows: unlike in the dense models, every second of the first `max_window_layers` layers
// has one.
void read_windows(ConfigReader& reader, DecoderTraits& traits) {
  const bool enabled = reader.boolean_or("use_sliding_window", false);
  const int64_t fallback = reader.has("sliding_window") ? 0 : kDefaultWindow;
  const int64_t given = reader.optional_integer("sliding_window", fallback, 0, int64_t{1} << 31);
  const int64_t window = enabled ? given : 0;
  const int64_t end =
      reader.optional_integer("max_window_layers", kDefaultMaxWindowLayers, 0, int64_t{1} << 31);
  if (read_layer_types(reader, window, traits)) return;
  for (size_t i = 0; i < traits.layers.size() && static_cast<int64_t>(i) < end; i += 2)
    traits.layers[i].window = window;
}

void read_qwen2_moe(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  traits.qkv_bias = reader.boolean_or("qkv_bias", true);
  read_windows(reader, traits);
  read_qwen_experts(reader, traits);
  traits.experts.routing.normalized = reader.boolean_or("norm_topk_prob", false);
}

}  // namespace

const Family kQwen2Moe = {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe};

}  // namespace walsh
