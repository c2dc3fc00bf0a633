// The model families, one file each.
#pragma once

#include <span>
#include <string_view>

#include "arch/config_reader.h"
#include "arch/decoder.h"

namespace walsh {

struct Family {
  std::string_view model_type;    // config.json's "model_type"
  std::string_view architecture;  // the only supported entry of "architectures"
  // Reads what is particular to the family. The shape of the model is read before: every layer of
  // `traits` has it, and config.ropes has the ropes; of two, layers with a window get the second.
  void (*read)(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
  RopeDefaults rope = {};
  // JSON object of the shape that absent keys mean, where published files leave them out.
  std::string_view defaults = {};
};

std::span<const Family> families();
// nullptr if there is no such family.
const Family* find_family(std::string_view model_type);

extern const Family kDeepseekV2, kDeepseekV3, kGemma, kGemma2, kGemma3, kGlm, kGlm4, kGlm4Moe,
    kGptOss, kGranite, kGraniteMoe, kLlama, kLlama4, kMinistral, kMinistral3, kMistral, kMixtral,
    kOlmo2, kOlmo3, kOlmoe, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe, kQwen35, kQwen35Moe,
    kQwen3Next, kSmolLm3;

// `sliding_window`: absent gives the fallback, null none (0).
int64_t read_window(ConfigReader& reader, int64_t fallback);
// Qwen's rule: `use_sliding_window` with `sliding_window`, from layer `max_window_layers` on or as
// `layer_types` lists.
void read_qwen_windows(ConfigReader& reader, DecoderTraits& traits);
// Windows as `layer_types` lists them: `window` for "sliding_attention". False if there is no list.
bool read_layer_types(ConfigReader& reader, int64_t window, DecoderTraits& traits);
// What all Gemmas have: gains stored minus one, GeGLU, a scaled embedding that is the head, too.
void read_gemma(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
// The norms behind both blocks of Gemma 2 and 3, and the scale of their attention.
void read_gemma_blocks(ConfigReader& reader, DecoderTraits& traits);
// A cap of logits: absent gives the fallback, null none (0).
float read_cap(ConfigReader& reader, const char* key, double fallback);

// Number of experts, those of a token, and under the key `width` the width of one: all layers get
// them. Refuses counts that contradict each other.
void read_expert_counts(ConfigReader& reader, const char* width, DecoderTraits& traits);
// Which layers have an MLP instead: `decoder_sparse_step` and `mlp_only_layers`.
void read_dense_layers(ConfigReader& reader, DecoderTraits& traits);
// Groups of experts (`n_group`, `topk_group`), of which the best `group_best` ones count, and the
// factor of the weights. Experts that are not `grouped` are one group, whatever those say.
void read_expert_groups(ConfigReader& reader, int64_t group_best, DecoderTraits& traits,
                        bool grouped = true);
// The first layers have an MLP (`first_k_dense_replace`), the others `n_shared_experts` experts
// that every token gets, as one.
void read_shared_experts(ConfigReader& reader, int64_t dense_layers, DecoderTraits& traits);
// Layers that guess further tokens, behind the others: their tensors are left out.
void read_guessing_layers(ConfigReader& reader, const DecoderTraits& traits, ModelConfig& config);
// The layers that `no_rope_layers` marks with 0, or every `no_rope_layer_interval`-th, have none.
void read_layers_without_rope(ConfigReader& reader, DecoderTraits& traits);

}  // namespace walsh
