// `walsh inspect` of a Hugging Face folder, in walsh's codes or as it is.
#pragma once

#include <functional>
#include <string>

namespace walsh::cli {

// Prints what is in it. Every tensor is looked up; with `check` all of them are decoded. `step` is
// called in front of each with the number done, the number of all, and its name. Throws as
// open_source.
void inspect_folder(const std::string& path, bool check, bool json,
                    const std::function<void(size_t, size_t, const std::string&)>& step);

}  // namespace walsh::cli
