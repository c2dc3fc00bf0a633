// Reads image files that the user names.
#pragma once

#include <string>
#include <vector>

namespace walsh::cli {

// Returns the content of a file; whether it is an image is found when it is shown. Throws io, and
// limit for more than 32 MiB.
std::string read_image(const std::string& path);
std::vector<std::string> read_images(const std::vector<std::string>& paths);

}  // namespace walsh::cli
