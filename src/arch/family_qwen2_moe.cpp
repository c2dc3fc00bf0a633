// Qwen 2 with experts has a shared expert, gated by a sigmoid, besides the routed ones.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultMaxWindowLayers = 28;
constexpr int64_t kMaxWidth = int64_t{1} << 20;

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
  read_expert_counts(reader, "moe_intermediate_size", traits);
  read_dense_layers(reader, traits);
  traits.experts.routing.normalized = reader.boolean_or("norm_topk_prob", false);
  traits.experts.gated_shared = true;
  const int64_t shared = reader.integer("shared_expert_intermediate_size", 1, kMaxWidth);
  for (LayerTraits& layer : traits.layers)
    layer.shared = shared;
}

}  // namespace

const Family kQwen2Moe = {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe};

}  // namespace walsh
