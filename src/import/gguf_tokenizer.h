// tokenizer.json and tokenizer_config.json from the metadata of a GGUF file.
#pragma once

#include <string>

#include "import/gguf_metadata.h"

namespace walsh {

struct GgufTokenizer {
  std::string json, config;  // both empty if the file has no tokenizer
};

// Byte-level BPE ("gpt2" with a known tokenizer.ggml.pre) and SentencePiece's BPE ("llama"), whose
// merges follow from the scores. Throws bad_input naming the key for other kinds, for arrays that
// do not fit each other and for ids that are no token.
GgufTokenizer gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace walsh
