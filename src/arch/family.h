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
  // `traits` has it, and config.ropes has the one rope.
  void (*read)(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config);
};

std::span<const Family> families();
// nullptr if there is no such family.
const Family* find_family(std::string_view model_type);

extern const Family kGemma2, kLlama, kMistral, kPhi3, kQwen2, kQwen3, kQwen35;

// Qwen's rule: `use_sliding_window` with `sliding_window`, from layer `max_window_layers` on or as
// `layer_types` lists.
void read_qwen_windows(ConfigReader& reader, DecoderTraits& traits);
// Windows as `layer_types` lists them: `window` for "sliding_attention". False if there is no list.
bool read_layer_types(ConfigReader& reader, int64_t window, DecoderTraits& traits);

}  // namespace walsh
