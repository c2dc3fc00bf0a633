// Flags of llama.cpp that change nothing here: they are taken, and a note says so.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace walsh::cli {

// Removes those flags of the table that `command` does not have from its arguments behind `first`.
// Returns a note for each, in the order in which they were typed.
std::vector<std::string> take_other_flags(const CLI::App& command, size_t first,
                                          std::vector<std::string>& arguments);

}  // namespace walsh::cli
