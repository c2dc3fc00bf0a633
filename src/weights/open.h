// Opens the weights of a model as they are stored, whatever form they have.
#pragma once

#include <memory>
#include <string>

#include "arch/config.h"
#include "codec/weight_source.h"

namespace walsh {

// Opens a walsh file, a folder in walsh's codes, a Hugging Face folder or a foreign GGUF file.
// Throws bad_input for anything else.
std::unique_ptr<WeightSource> open_stored(const std::string& path);

// Returns what sentence-transformers' files beside a model say of its embeddings
// (io/sentence_files.h), also if it was quantized since. The text is empty if there are none.
// Throws bad_input for files that are malformed or not supported.
std::string embedding_json(const WeightSource& source);

// Returns the description of the model whose weights these are, without a layer that predicts
// further tokens if they have none. Throws as parse_config.
ModelConfig read_config(const WeightSource& source);

}  // namespace walsh
