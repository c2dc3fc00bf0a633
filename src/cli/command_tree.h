// Describes the commands and flags of the parser, for completions and manual pages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

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

// Returns the program first, then the commands that --help lists.
std::vector<CommandDescription> describe_commands(const CLI::App& root);

// These two return completion scripts for shells.
std::string bash_completions(const std::vector<CommandDescription>& commands);
std::string zsh_completions(const std::vector<CommandDescription>& commands);
std::string fish_completions(const std::vector<CommandDescription>& commands);
// Returns a page of man(7) macros for the program or one of its commands.
std::string manual_page(const std::vector<CommandDescription>& commands, const std::string& name);

}  // namespace walsh::cli
