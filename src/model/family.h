// The model families: a config reader plus a name map each, one file per family.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/config.h"
#include "model/config_reader.h"

namespace walsh {

// Names of a family's tensors. Those of a layer follow `layers` + index + "."; a linear weight is
// name + ".weight", its bias name + ".bias".
struct TensorNames {
  std::string_view embedding, head, final_norm, layers;
  std::string_view attention_norm, q, k, v, o, q_norm, k_norm;
  std::string_view mlp_norm, gate, up, down;
};

// The names of transformers' LlamaForCausalLM, which most families took over.
extern const TensorNames kLlamaNames;

struct Family {
  std::string_view model_type;    // config.json's "model_type"
  std::string_view architecture;  // the only supported entry of "architectures"
  // Reads what is particular to the family; the shape, the rope and the ids are read before.
  void (*read)(ConfigReader& reader, ModelConfig& config);
  const TensorNames* names;
};

std::span<const Family> families();
// nullptr if there is no such family.
const Family* find_family(std::string_view model_type);

extern const Family kLlama, kMistral, kQwen2, kQwen3;

// Qwen's rule: `use_sliding_window` with `sliding_window`, from layer `max_window_layers` on or as
// `layer_types` lists.
void read_qwen_windows(ConfigReader& reader, ModelConfig& config);

}  // namespace walsh
