// `--help` of the program and its commands: what most people need, with examples. All flags are in
// --help-all.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace walsh::cli {

// Of the program, or of the command that was chosen.
std::string short_help(const CLI::App& root);

// Why there is no such command or flag, with the name that may have been meant; `command` is the
// one that was chosen, or the program.
std::string no_such_command(const CLI::App& root, const std::string& name);
std::string no_such_flag(const CLI::App& command, const std::string& name);

}  // namespace walsh::cli
