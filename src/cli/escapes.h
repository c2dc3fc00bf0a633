// Reads escape sequences in command-line texts as llama.cpp's -e does.
#pragma once

#include <string>
#include <string_view>

namespace walsh::cli {

// Replaces \n, \r, \t, \', \", \\ and \xHH; any other backslash stays.
std::string unescaped(std::string_view text);

}  // namespace walsh::cli
