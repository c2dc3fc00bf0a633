// Where the tensors of a GGUF file belong in the checkpoint that it was made from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/gguf_family.h"

namespace walsh {

// A part of a tensor of the file, and the tensor of the checkpoint that it is.
struct GgufPlace {
  std::string name;
  std::vector<int64_t> shape;  // outermost dimension first
  uint64_t offset = 0;         // in the tensor's data, bytes
  uint64_t bytes = 0;
};

// One place, or several for the experts of a layer; none for what is not a weight but part of the
// config (rope_freqs.weight) and for layers that guess further tokens. Throws bad_input naming
// `path` and the tensor for one that is not known or does not hold `.expert_count` experts.
std::vector<GgufPlace> gguf_places(const GgufMetadata& metadata, const GgufFamily& family,
                                   const GgufTensor& tensor, const std::string& path);

}  // namespace walsh
