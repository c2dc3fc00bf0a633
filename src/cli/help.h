// Prints `--help` of the program and its commands, which shows the most important flags, with
// examples. The flag --help-all lists all flags.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace walsh::cli {

// Returns the help of the program, or of the command that was chosen.
std::string short_help(const CLI::App& root);

// Returns the message about an unknown command or flag, with a suggestion; `command` is the chosen
// command or the program.
std::string no_such_command(const CLI::App& root, const std::string& name);
std::string no_such_flag(const CLI::App& command, const std::string& name);

}  // namespace walsh::cli
