// Declares the model families, each of which is a file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config_reader.h"
#include "arch/decoder.h"

namespace walsh {

struct Family {
  std::string_view model_type;    // It stands under "model_type" in config.json.
  std::string_view architecture;  // It is the only supported entry of "architectures".
  // Reads what is special about the family. The shape of the model has been read before: every
  // layer of `traits` has it, and config.ropes has the ropes. If there are two ropes, layers with a
  // window get the second.
  void (*read)(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
  RopeDefaults rope = {};
  // Holds defaults of the shape, as a JSON object, for families whose published files omit these
  // keys.
  std::string_view defaults = {};
  const char* norm_eps = "rms_norm_eps";  // The eps of its norms has this key.
};

std::span<const Family> families();
// Returns null if there is no such family.
const Family* find_family(std::string_view model_type);

extern const Family kArcee, kCohere2, kDeepseekV2, kDeepseekV3, kErnie45, kErnie45Moe, kExaone4,
    kGemma, kGemma2, kGemma3, kGemma4, kGlm, kGlm4, kGlm4Moe, kGptOss, kGranite, kGraniteHybrid,
    kGraniteMoe, kHunYuanDense, kLfm2, kLfm2Moe, kLlama, kLlama4, kMiniMaxM2, kMinistral,
    kMinistral3, kMistral, kMixtral, kNemotronH, kOlmo2, kOlmo3, kOlmoe, kPhi3, kQwen2, kQwen2Moe,
    kQwen3, kQwen3Moe, kQwen3Vl, kQwen3VlMoe, kQwen35, kQwen35Moe, kQwen3Next, kSeedOss, kSmolLm3;

constexpr int64_t kDefaultWindow = 4096;  // transformers assumes this for most families.

// Reads `sliding_window`. An absent key gives the fallback, null gives no window (0).
int64_t read_window(ConfigReader& reader, int64_t fallback);
// Applies Qwen's rule: with `use_sliding_window`, `sliding_window` applies from layer
// `max_window_layers` on, or as `layer_types` lists.
void read_qwen_windows(ConfigReader& reader, DecoderTraits& traits);
// Returns what the list of this key calls every layer; empty if there is no list.
std::vector<std::string> kinds_of_layers(ConfigReader& reader, const char* key,
                                         const DecoderTraits& traits);
// Returns for every layer whether `layer_types` lists it as this kind; empty if there is no list.
// The only other kind is "full_attention".
std::vector<bool> layers_of_kind(ConfigReader& reader, std::string_view kind,
                                 const DecoderTraits& traits);
// Gives `window` to the layers that `layer_types` lists as "sliding_attention". Returns false if
// there is no list.
bool read_layer_types(ConfigReader& reader, int64_t window, DecoderTraits& traits);
// Gives `window` to all layers but the last of every `pattern`.
void set_window_pattern(int64_t window, int64_t pattern, DecoderTraits& traits);
// Returns the layers whose numbers the list of this key has; none if the key is absent.
std::vector<size_t> listed_layers(ConfigReader& reader, const char* key,
                                  const DecoderTraits& traits);
// Reads what all Gemmas share: gains stored minus one, GeGLU, a scaled embedding that is tied to
// the head.
void read_gemma(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
// Reads the norms after both blocks of Gemma 2 and 3, and their attention scale.
void read_gemma_blocks(ConfigReader& reader, DecoderTraits& traits);
// Reads a cap of logits. An absent key gives the fallback, null gives no cap (0).
float read_cap(ConfigReader& reader, const char* key, double fallback);

// Reads how many experts there are, how many a token gets and, under the key `width`, how wide one
// is. All layers get experts. Throws bad_input if numbers contradict each other.
void read_expert_counts(ConfigReader& reader, const char* width, DecoderTraits& traits);
// Sets the names that Mixtral's checkpoints have for the matrices of experts.
void set_mixtral_names(TensorNames& names);
// Gives a dense MLP instead of experts to the layers that `decoder_sparse_step` and
// `mlp_only_layers` name.
void read_dense_layers(ConfigReader& reader, DecoderTraits& traits);
// Reads Qwen's experts: dense layers, and a shared expert with a gate in every other layer.
void read_qwen_experts(ConfigReader& reader, DecoderTraits& traits);
// Reads the groups of experts (`n_group`, `topk_group`) and the factor of their weights. A group is
// scored by its best `group_best` experts. If not `grouped`, all experts are one group, whatever
// the keys say.
void read_expert_groups(ConfigReader& reader, int64_t group_best, DecoderTraits& traits,
                        bool grouped = true);
// Reads shared experts: the first layers have a dense MLP (`first_k_dense_replace`), the others
// have `n_shared_experts` shared experts, which are combined to one.
void read_shared_experts(ConfigReader& reader, int64_t dense_layers, DecoderTraits& traits);
// Reads layers of multi-token prediction that follow the others, as in DeepSeek-V3. The first one
// predicts ahead; the tensors of the others are left out. Call this when all layers are known.
void read_guessing_layers(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
// Names the keys of a config that describe Mamba-2 mixers.
struct Mamba2Keys {
  const char *heads, *head_dim, *groups, *state, *taps, *convolution_bias, *bias;
};
struct Mamba2Shape {
  int64_t heads, head_dim, groups, state;
};
// Sets the names of a mixer's matrices and vectors, which begin with `prefix`.
void set_mamba2_names(const std::string& prefix, TensorNames& names);
// These return whether a list of layers means a Mamba-2 mixer, or attention.
bool is_mamba2(std::string_view kind);
bool is_attention(std::string_view kind);
// Reads Mamba-2 mixers and makes recurrent layers additive delta nets. Absent keys have these
// defaults.
void read_mamba2(ConfigReader& reader, const Mamba2Keys& keys, const Mamba2Shape& defaults,
                 DecoderTraits& traits);
// Takes rope away from the layers that `no_rope_layers` marks with 0, or from every
// `no_rope_layer_interval`-th layer.
void read_layers_without_rope(ConfigReader& reader, DecoderTraits& traits);

}  // namespace walsh
