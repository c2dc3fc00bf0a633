// Maps what llama.cpp's converter writes for the architectures of GGUF files back to the
// checkpoint's config.json and tensors. Each kind of model is a row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "import/gguf_metadata.h"
#include "io/json.h"

namespace walsh {

// A name pairs a GGUF's tensor name with the checkpoint's, without the layer and without ".weight";
// both names are whole where the file's ends in something else (".bias" of what has no weight). In
// the name of a tensor that holds all experts along its outermost dimension, "*" stands for the
// expert's number. If a tensor holds the rows of two matrices one below the other, the lower matrix
// is `second`.
struct GgufName {
  std::string_view gguf, checkpoint, second = {};
};

struct GgufFamily {
  std::string_view architecture;             // general.architecture
  std::string_view model_type, model_class;  // of config.json
  std::span<const GgufName> names;  // looked up before the names that all architectures share
  bool paired_heads = false;        // rows of q and k are interleaved for llama.cpp's rope
  float gain_offset = 0;            // what the converter adds to the gains of norms (Gemma: 1)
  // Adds the family's entries to a config.json that has what all architectures share.
  void (*describe)(const GgufMetadata& metadata, Json& config) = nullptr;
  // Chooses among several rows of one architecture: the first that returns true is taken.
  bool (*suits)(const GgufMetadata& metadata) = nullptr;
  bool layer_norms = false;    // LayerNorm in place of RMSNorm
  bool layers_differ = false;  // in their heads and widths, which `describe` adds
};

// Returns all rows, sorted by architecture.
std::span<const GgufFamily> gguf_families();

// Finds the row of a file. Throws bad_input naming the file and the known architectures.
const GgufFamily& gguf_family(const GgufMetadata& metadata);

// Finds the name of a layer's tensor, given without ".weight" or ".bias"; nullptr if unknown.
const GgufName* gguf_layer_name(const GgufFamily& family, std::string_view name);

}  // namespace walsh
