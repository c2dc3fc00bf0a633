// Accepts flags of llama.cpp that have no effect here, with a note.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace walsh::cli {

// Removes flags in this table that `command` does not have from its arguments after `first`.
// Returns a note for each, in the order they were typed.
std::vector<std::string> take_other_flags(const CLI::App& command, size_t first,
                                          std::vector<std::string>& arguments);

}  // namespace walsh::cli
