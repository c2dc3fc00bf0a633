// Implements `walsh inspect` for a GGUF file of another program.
#pragma once

#include <functional>
#include <string>

namespace walsh::cli {

// Prints a description and the tensors, with the names in the file and in the checkpoint. With
// `check`, reads every tensor as a model would, after calling `step`. Throws as
// open_gguf_checkpoint.
void inspect_gguf(const std::string& path, bool check, bool json,
                  const std::function<void(size_t done, size_t count, const std::string&)>& step);

}  // namespace walsh::cli
