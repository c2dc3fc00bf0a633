// Flags of llama.cpp that change nothing here: they are taken, and a note says so.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace walsh::cli {

// Takes them out of the arguments of `command` behind `first`, in the order in which they were
// typed, where the command has no flag of that name; returns a note for each.
std::vector<std::string> take_other_flags(const CLI::App& command, size_t first,
                                          std::vector<std::string>& arguments);

}  // namespace walsh::cli
