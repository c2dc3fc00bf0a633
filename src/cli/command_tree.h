// Describes commands and flags as help, completions and manual pages list them.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace walsh::cli {

struct FlagDescription {
  std::vector<std::string> names;  // they have their dashes; a positional argument has one name
  bool positional = false, required = false;
  bool takes_value = false, repeats = false;
  bool takes_file = false;
  // A placeholder such as "TYPE" stands for it; a flag without value has none.
  std::string value;
  std::vector<std::string> choices;  // these are the values, if they are known
  std::string initial;               // this is the default; it is empty if there is none to show
  std::string help, group, environment;
};

struct CommandDescription {
  std::string name;  // the program itself has an empty name
  std::string help, footer;
  std::vector<FlagDescription> flags;  // they are in the order of --help
};

CommandDescription describe(const Command& command);
// Returns the program first, then its commands.
std::vector<CommandDescription> describe_commands(const Command& program);

// These two return completion scripts for shells.
std::string bash_completions(const std::vector<CommandDescription>& commands);
std::string zsh_completions(const std::vector<CommandDescription>& commands);
std::string fish_completions(const std::vector<CommandDescription>& commands);
// Returns a page of man(7) macros for the program or one of its commands.
std::string manual_page(const std::vector<CommandDescription>& commands, const std::string& name);

}  // namespace walsh::cli
