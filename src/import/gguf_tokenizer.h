// tokenizer.json and tokenizer_config.json from the metadata of a GGUF file.
#pragma once

#include <string>

#include "import/gguf_metadata.h"

namespace walsh {

struct GgufTokenizer {
  std::string json, config;  // both empty if the file has no tokenizer
};

// Byte-level BPE ("gpt2" with a known tokenizer.ggml.pre) and SentencePiece's BPE ("llama"), whose
// merges follow from the scores. Types of tokens mean what they mean to llama.cpp: control, user
// defined and unknown ones are found in the text before it is cut into words, wherever their ids
// lie; unused ones of byte-level BPE are no tokens. Throws bad_input naming the key for other
// kinds, for arrays that do not fit each other and for ids that are no token.
GgufTokenizer gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace walsh
