// Architectures of GGUF files: what llama.cpp's converter makes of a checkpoint's config.json and
// tensors, read backwards. One row per architecture.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "import/gguf_metadata.h"
#include "io/json.h"

namespace walsh {

// A GGUF's name of a tensor and the checkpoint's, without the layer and without ".weight".
struct GgufName {
  std::string_view gguf, checkpoint;
};

struct GgufFamily {
  std::string_view architecture;             // general.architecture
  std::string_view model_type, model_class;  // of config.json
  std::span<const GgufName> names;           // in front of those that all architectures have
  bool paired_heads = false;  // rows of q and k are stored in the order of llama.cpp's rope
  float gain_offset = 0;      // what the converter adds to the gains of norms
  // Adds what is particular to the config.json that has what all architectures share.
  void (*describe)(const GgufMetadata& metadata, Json& config) = nullptr;
};

// Throws bad_input naming the file and the architectures that are known.
const GgufFamily& gguf_family(const GgufMetadata& metadata);

// The name in the checkpoint of a tensor of the file. Nothing for what is not a weight but part of
// the config (rope_freqs.weight). Throws bad_input for a tensor that is not known.
std::optional<std::string> checkpoint_name(const GgufFamily& family, std::string_view name,
                                           std::string_view path);

}  // namespace walsh
