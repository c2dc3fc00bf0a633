// Somebody else's GGUF file (llama.cpp's) as a checkpoint: names and order of rows, config.json and
// tokenizer.json are those of the Hugging Face model that it was converted from.
#pragma once

#include <string>

#include "io/checkpoint.h"

namespace walsh {

// True for a file that starts as GGUF and is not walsh's own: one that is damaged, too, so that
// open_gguf_checkpoint says what is wrong.
bool is_foreign_gguf(const std::string& path);

// Also several files: one whose name ends in -00001-of-00003.gguf stands for all of them. Throws io
// if a file cannot be read; bad_input naming file and key or tensor for anything malformed, for
// architectures, tensors and tokenizers that are not known.
Checkpoint open_gguf_checkpoint(const std::string& path);

}  // namespace walsh
