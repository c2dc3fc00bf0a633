// Qwen 2 and 2.5: biases on q, k and v; some layers may have a sliding window.
#include "model/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultWindow = 4096;  // transformers' defaults for absent keys
constexpr int64_t kDefaultMaxWindowLayers = 28;

void read(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = true;
  read_qwen_windows(reader, config);
}

}  // namespace

void read_qwen_windows(ConfigReader& reader, ModelConfig& config) {
  const bool enabled = reader.boolean_or("use_sliding_window", false);
  int64_t fallback = reader.has("sliding_window") ? 0 : kDefaultWindow;
  int64_t window = reader.integer_or("sliding_window", fallback, 1, int64_t{1} << 31);
  if (!enabled) window = 0;
  const int64_t first =
      reader.integer_or("max_window_layers", kDefaultMaxWindowLayers, 0, int64_t{1} << 31);
  const Json* types = reader.value("layer_types");
  if (types == nullptr) {
    for (int64_t i = first; i < config.layers; ++i)
      config.windows[static_cast<size_t>(i)] = window;
    return;
  }
  if (!types->is_array() || types->size() != config.windows.size()) {
    reader.refuse("layer_types", "expected one entry per layer");
  }
  for (size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] == "sliding_attention" && window != 0) {
      config.windows[i] = window;
    } else if ((*types)[i] != "full_attention") {
      reader.refuse("layer_types",
                    "expected 'full_attention', or 'sliding_attention' with a sliding window");
    }
  }
}

const Family kQwen2 = {"qwen2", "Qwen2ForCausalLM", read, &kLlamaNames};

}  // namespace walsh
