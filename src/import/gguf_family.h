// Maps the keys and tensors that llama.cpp's converter writes for the architectures of GGUF files
// back to the checkpoint's config.json and tensors. Each kind of model is a row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "import/gguf_metadata.h"
#include "io/json.h"

namespace walsh {

// A name pairs a GGUF's tensor name with the checkpoint's, without the layer and without ".weight";
// both names are whole where the file's name ends in something else, such as ".bias" of a tensor
// without a weight. In the name of a tensor that holds all experts along its outermost dimension,
// "*" stands for the expert's number. If a tensor holds the rows of two matrices one below the
// other, the lower matrix is `second`.
struct GgufName {
  std::string_view gguf, checkpoint, second = {};
};

struct GgufFamily {
  std::string_view architecture;             // this is general.architecture
  std::string_view model_type, model_class;  // these are those of config.json
  // These names are looked up before those that all architectures share.
  std::span<const GgufName> names;
  bool paired_heads = false;  // rows of q and k are interleaved for llama.cpp's rope
  float gain_offset = 0;      // the converter adds it to the gains of norms (1 for Gemma)
  // Adds the family's entries to a config.json that has the entries which all architectures share.
  void (*describe)(const GgufMetadata& metadata, Json& config) = nullptr;
  // Chooses among several rows of one architecture, of which the first that returns true is taken.
  bool (*suits)(const GgufMetadata& metadata) = nullptr;
  bool layer_norms = false;    // norms are LayerNorms instead of RMSNorms
  bool layers_differ = false;  // their heads and widths differ; `describe` adds them
};

// Returns all rows, sorted by architecture.
std::span<const GgufFamily> gguf_families();

// Finds the row of a file. Throws bad_input naming the file and the known architectures.
const GgufFamily& gguf_family(const GgufMetadata& metadata);

// Finds the name of a layer's tensor, which is given without ".weight" or ".bias". Returns nullptr
// if it is unknown.
const GgufName* gguf_layer_name(const GgufFamily& family, std::string_view name);

}  // namespace walsh
