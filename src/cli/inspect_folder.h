// Implements `walsh inspect` for a Hugging Face folder, whose tensors have walsh's codes or are
// plain.
#pragma once

#include <functional>
#include <string>

namespace walsh::cli {

// Prints the content of the folder at `path`. Every tensor is looked up, and with `check` decoded.
// `step` is called before each with the number done, the total and the tensor's name. Throws as
// open_stored.
void inspect_folder(const std::string& path, bool check, bool json,
                    const std::function<void(size_t, size_t, const std::string&)>& step);

}  // namespace walsh::cli
