// Reads what a prompt is made of: escape sequences in texts, and files of images.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace walsh::cli {

// Replaces \n, \r, \t, \', \", \\ and \xHH as llama.cpp's -e does; any other backslash stays.
std::string unescaped(std::string_view text);

// Returns the content of a file; whether it is an image is found when it is shown. Throws io, and
// limit for more than 32 MiB.
std::string read_image(const std::string& path);
std::vector<std::string> read_images(const std::vector<std::string>& paths);

}  // namespace walsh::cli
