// The commands and flags as the parser knows them: what completions and manual pages are made of.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace walsh::cli {

struct FlagDescription {
  std::vector<std::string> names;  // with their dashes; of a positional argument its one name
  bool positional = false, required = false;
  bool takes_value = false, repeats = false;
  bool takes_file = false;
  std::string value;                 // what stands for it in a text: "TYPE"; empty for flags
  std::vector<std::string> choices;  // the values, if they are known
  std::string initial;               // value without the flag; empty if there is none to tell
  std::string help, group, environment;
};

struct CommandDescription {
  std::string name;  // empty for the program itself
  std::string help, footer;
  std::vector<FlagDescription> flags;  // in the order of --help
};

// The program first, then the commands that --help shows.
std::vector<CommandDescription> describe_commands(const CLI::App& root);

// Scripts for shells, of describe_commands.
std::string bash_completions(const std::vector<CommandDescription>& commands);
std::string zsh_completions(const std::vector<CommandDescription>& commands);
std::string fish_completions(const std::vector<CommandDescription>& commands);
// A page in the macros of man(7), of the program or of one of its commands.
std::string manual_page(const std::vector<CommandDescription>& commands, const std::string& name);

}  // namespace walsh::cli
