// Architectures of GGUF files: what llama.cpp's converter makes of a checkpoint's config.json and
// tensors, read backwards. One row per kind of model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "import/gguf_metadata.h"
#include "io/json.h"

namespace walsh {

// A GGUF's name of a tensor and the checkpoint's, without the layer and without ".weight". A
// tensor of all experts, which are its outermost dimension, has a name with "*" for their numbers.
// Where the rows of two matrices stand below each other, the lower ones are `second`.
struct GgufName {
  std::string_view gguf, checkpoint, second = {};
};

struct GgufFamily {
  std::string_view architecture;             // general.architecture
  std::string_view model_type, model_class;  // of config.json
  std::span<const GgufName> names;           // in front of those that all architectures have
  bool paired_heads = false;  // rows of q and k are stored in the order of llama.cpp's rope
  float gain_offset = 0;      // what the converter adds to the gains of norms
  // Adds what is particular to the config.json that has what all architectures share.
  void (*describe)(const GgufMetadata& metadata, Json& config) = nullptr;
  // Of several rows of one architecture the first one that suits.
  bool (*suits)(const GgufMetadata& metadata) = nullptr;
};

// The rows, sorted by architecture.
std::span<const GgufFamily> gguf_families();

// Throws bad_input naming the file and the architectures that are known.
const GgufFamily& gguf_family(const GgufMetadata& metadata);

// The row that names a tensor of a layer, without ".weight" or ".bias"; nullptr if there is none.
const GgufName* gguf_layer_name(const GgufFamily& family, std::string_view name);

}  // namespace walsh
