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
  // Reads what is special about the family. The shape of the model has been read: it is in every
  // layer of `traits`, and config.ropes has the ropes; if there are two, layers with a window get
  // the second.
  void (*read)(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
  RopeDefaults rope = {};
  // Default shape as a JSON object, for families whose published files omit these keys.
  std::string_view defaults = {};
  const char* norm_eps = "rms_norm_eps";  // the key of the eps of its norms
};

std::span<const Family> families();
// Returns null if there is no such family.
const Family* find_family(std::string_view model_type);

extern const Family kArcee, kCohere2, kDeepseekV2, kDeepseekV3, kErnie45, kErnie45Moe, kExaone4,
    kGemma, kGemma2, kGemma3, kGemma4, kGlm, kGlm4, kGlm4Moe, kGptOss, kGranite, kGraniteMoe,
    kHunYuanDense, kLlama, kLlama4, kMiniMaxM2, kMinistral, kMinistral3, kMistral, kMixtral, kOlmo2,
    kOlmo3, kOlmoe, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe, kQwen35, kQwen35Moe, kQwen3Next,
    kSeedOss, kSmolLm3;

constexpr int64_t kDefaultWindow = 4096;  // what transformers takes for most families

// `sliding_window`: absent means the fallback, null means none (0).
int64_t read_window(ConfigReader& reader, int64_t fallback);
// Qwen's rule: with `use_sliding_window`, `sliding_window` applies from layer `max_window_layers`
// on, or as `layer_types` lists.
void read_qwen_windows(ConfigReader& reader, DecoderTraits& traits);
// Windows as listed in `layer_types`: `window` for "sliding_attention". False if there is no list.
bool read_layer_types(ConfigReader& reader, int64_t window, DecoderTraits& traits);
// Common to all Gemmas: gains stored minus one, GeGLU, a scaled embedding that is tied to the head.
void read_gemma(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
// The norms after both blocks of Gemma 2 and 3, and their attention scale.
void read_gemma_blocks(ConfigReader& reader, DecoderTraits& traits);
// Returns a cap of logits: absent means the fallback, null means none (0).
float read_cap(ConfigReader& reader, const char* key, double fallback);

// Numbers of experts and of experts per token, and under the key `width` an expert's width; all
// layers get them. Refuses contradicting numbers.
void read_expert_counts(ConfigReader& reader, const char* width, DecoderTraits& traits);
// The names that Mixtral gave the matrices of experts.
void set_mixtral_names(TensorNames& names);
// Layers with a dense MLP instead: `decoder_sparse_step` and `mlp_only_layers`.
void read_dense_layers(ConfigReader& reader, DecoderTraits& traits);
// Groups of experts (`n_group`, `topk_group`), each scored by its best `group_best` experts, and
// the factor of the weights. If not `grouped`, all experts are one group, whatever the keys say.
void read_expert_groups(ConfigReader& reader, int64_t group_best, DecoderTraits& traits,
                        bool grouped = true);
// The first layers have a dense MLP (`first_k_dense_replace`), the others `n_shared_experts` shared
// experts, combined to one.
void read_shared_experts(ConfigReader& reader, int64_t dense_layers, DecoderTraits& traits);
// Multi-token prediction layers after the others, as DeepSeek-V3 has them: the first one predicts
// ahead, the tensors of the others are left out. Called when all layers are known.
void read_guessing_layers(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
// Layers without rope: those that `no_rope_layers` marks with 0, or every
// `no_rope_layer_interval`-th.
void read_layers_without_rope(ConfigReader& reader, DecoderTraits& traits);

}  // namespace walsh
