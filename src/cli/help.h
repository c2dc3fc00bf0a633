// Prints `--help` of the program and its commands, which shows the most important flags, with
// examples. The flag --help-all lists all flags.
#pragma once

#include <string>

#include "cli/flags.h"

namespace walsh::cli {

// Returns the help of the program, or of its command if that is not null.
std::string short_help(Command& program, const Command* command);

// Returns the message about an unknown command or flag, with a suggestion; `command` is the chosen
// command or the program.
std::string no_such_command(const Command& program, const std::string& name);
std::string no_such_flag(const Command& command, const std::string& name);

}  // namespace walsh::cli
