// Reads command lines by the flags of commands (cli/flags.h). What includes CLI11 is behind this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace walsh::cli {

struct Parsed {
  const Command* command = nullptr;  // the one of the program that was chosen, or null
  std::optional<Help> help;          // This help was asked for, if any.
};

// Gives the flags of the program and of the chosen command their values. Throws usage for arguments
// that are not theirs.
Parsed parse(Command& program, std::vector<std::string> arguments);

// Returns the help with all flags of the command of the program, or of the program without one.
std::string full_help(Command& program, const Command* command);

}  // namespace walsh::cli
