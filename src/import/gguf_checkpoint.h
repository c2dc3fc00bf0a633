// Presents a GGUF file of another program (llama.cpp) as a checkpoint: tensor names, the order of
// rows, config.json and tokenizer.json are those of the Hugging Face model that it was converted
// from.
#pragma once

#include <string>

#include "io/checkpoint.h"

namespace walsh {

// Returns true for a file that starts as GGUF and is not walsh's own. A damaged one counts as well,
// so that open_gguf_checkpoint reports what is wrong.
bool is_foreign_gguf(const std::string& path);

// Opens such a file. A name that ends in -00001-of-00003.gguf stands for all files of a split
// model. Throws io if a file cannot be read, and bad_input naming the file and the key or tensor
// for anything malformed and for unknown architectures, tensors and tokenizers.
Checkpoint open_gguf_checkpoint(const std::string& path);

}  // namespace walsh
