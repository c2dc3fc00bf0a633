// Escape sequences in texts of the command line, as llama.cpp's -e reads them.
#pragma once

#include <string>
#include <string_view>

namespace walsh::cli {

// With the characters that \n, \r, \t, \', \", \\ and \xHH stand for; any other backslash stays.
std::string unescaped(std::string_view text);

}  // namespace walsh::cli
