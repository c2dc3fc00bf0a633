// Makes tokenizer.json and tokenizer_config.json from the metadata of a GGUF file.
#pragma once

#include <string>

#include "import/gguf_metadata.h"

namespace walsh {

struct GgufTokenizer {
  std::string json, config;  // both are empty if the file has no tokenizer
};

// Makes the tokenizer's files. It supports byte-level BPE ("gpt2" with a known tokenizer.ggml.pre)
// and SentencePiece BPE ("llama"), whose merges follow from the scores. Token types have
// llama.cpp's meaning: control, user-defined and unknown tokens are matched before the text is
// split into words, whatever their ids; unused tokens of byte-level BPE are ignored. Throws
// bad_input naming the key for other kinds, for arrays of different lengths and for invalid ids.
GgufTokenizer gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace walsh
