// `walsh inspect` of a GGUF file that walsh did not write.
#pragma once

#include <functional>
#include <string>

namespace walsh::cli {

// Prints what it is and its tensors, with the names of both worlds. With `check`, reads every
// tensor as a model would; `step` is called for each before. Throws as open_gguf_checkpoint.
void inspect_gguf(const std::string& path, bool check, bool json,
                  const std::function<void(size_t done, size_t count, const std::string&)>& step);

}  // namespace walsh::cli
