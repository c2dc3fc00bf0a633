// Maps the tensors of a GGUF file to tensors of the checkpoint that it was made from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/gguf_family.h"

namespace walsh {

// A place is a part of a tensor of the file, with the checkpoint's name for it.
struct GgufPlace {
  std::string name;
  std::vector<int64_t> shape;  // the outermost dimension comes first
  uint64_t offset = 0;         // it counts bytes from the start of the tensor's data
  uint64_t bytes = 0;
};

// Returns one place, or several for the experts of a layer. Returns none for tensors that become
// part of the config (rope_freqs.weight) and for multi-token prediction layers. Throws bad_input
// naming `path` and the tensor if it is unknown or does not hold `.expert_count` experts.
std::vector<GgufPlace> gguf_places(const GgufMetadata& metadata, const GgufFamily& family,
                                   const GgufTensor& tensor, const std::string& path);

}  // namespace walsh
