// Command R7B and Command A have LayerNorm without biases and compute attention and MLP in
// parallel. Rope turns neighbours in a head as a pair; layers without a window have no rope.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultPattern = 4;  // transformers assumes this for an absent key.
constexpr double kDefaultLogitScale = 0.0625, kLeast = 1e-6, kMost = 1e6;

// Gives a window to the layers that `layer_types` lists or, without the list, to all but the last
// of every `sliding_window_pattern`.
void read_windows(ConfigReader& reader, DecoderTraits& traits) {
  constexpr const char* kPattern = "sliding_window_pattern";
  const int64_t window = read_window(reader, kDefaultWindow);
  if (read_layer_types(reader, window, traits)) {
    reader.value(kPattern);
  } else {
    const int64_t pattern = reader.integer_or(kPattern, kDefaultPattern, 1, int64_t{1} << 31);
    if (window == 0 && pattern > 1) reader.refuse("sliding_window", "expected a number");
    set_window_pattern(window, pattern, traits);
  }
  for (LayerTraits& layer : traits.layers)
    if (layer.window == 0) layer.rope = -1;
}

// transformers does not read these keys of published files, in which only these values exist.
void read_published(ConfigReader& reader) {
  reader.only("position_embedding_type", "rope_gptj");
  reader.only("order_of_interleaved_layers", "local_attn_first");
  reader.only("rotary_pct", 1.0);
  for (const char* key : {"use_gated_activation", "use_parallel_block", "use_embedding_sharing"})
    reader.only(key, true);
  reader.only("use_parallel_embedding", false);
  reader.value("layer_switch");  // sliding_window_pattern, or layer_types, says the same.
}

void read_cohere2(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.layer_norms = traits.parallel = traits.paired_rope = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  config.logit_scale =
      static_cast<float>(reader.number_or("logit_scale", kDefaultLogitScale, kLeast, kMost));
  const LayerTraits& layer = traits.layers.front();
  if (layer.head_dim * layer.heads != config.hidden)
    reader.refuse("head_dim", "expected hidden_size / num_attention_heads");
  read_windows(reader, traits);
  read_published(reader);
}

constexpr std::string_view kDefaults = R"({"layer_norm_eps": 1e-5, "tie_word_embeddings": true})";

}  // namespace

const Family kCohere2 = {"cohere2", "Cohere2ForCausalLM", read_cohere2, {},
                         kDefaults, "layer_norm_eps"};

}  // namespace walsh
