// Gemma 3 is Gemma 2 with norms of queries and keys instead of caps; all layers except every sixth
// one have a window and a rope of their own.
#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kDefaultPattern = 6;

// The text part of models with vision states only what differs from these defaults.
constexpr std::string_view kDefaults = R"({
    "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6})";

void read_gemma3(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  read_gemma(reader, traits, config);
  read_gemma_blocks(reader, traits);
  traits.qk_norm = true;
  config.logit_cap = read_cap(reader, "final_logit_softcapping", 0);
  const int64_t window = reader.integer_or("sliding_window", kDefaultWindow, 1, int64_t{1} << 31);
  const bool no_pattern = reader.is_null("sliding_window_pattern");
  const int64_t old = reader.optional_integer("_sliding_window_pattern", kDefaultPattern, 1, 1024);
  const int64_t pattern = reader.optional_integer("sliding_window_pattern", old, 1, 1024);
  if (read_layer_types(reader, window, traits)) return;
  if (no_pattern) reader.refuse("sliding_window_pattern", "expected an integer, or no such key");
  set_window_pattern(window, pattern, traits);
}

}  // namespace

const Family kGemma3 = {"gemma3_text",
                        "Gemma3ForCausalLM",
                        read_gemma3,
                        {.theta = 1e6, .per_kind = true, .local_theta = 1e4},
                        kDefaults};

}  // namespace walsh
