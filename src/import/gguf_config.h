// Makes config.json and generation_config.json from the metadata of a GGUF file.
#pragma once

#include <string>

#include "import/gguf_family.h"
#include "import/gguf_metadata.h"

namespace walsh {

// Returns config.json. Throws bad_input naming the key or tensor that is missing or contradicts
// others. parse_config checks everything else.
std::string gguf_config(const GgufMetadata& metadata, const GgufFamily& family);

// Returns generation_config.json. It lists the end-of-text tokens, found as llama.cpp finds them,
// and the sampling options that the file recommends.
std::string gguf_generation_config(const GgufMetadata& metadata);

}  // namespace walsh
