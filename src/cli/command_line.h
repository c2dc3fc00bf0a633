// Prepares the arguments for the parser, and explains what it rejects.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace walsh::cli {

// Limits every flag to one value each time it is given. Otherwise `--api-key KEY MODEL` would take
// the MODEL as a second key.
void limit_to_one_value(CLI::App& command);

struct Arguments {
  std::vector<std::string> texts;  // they are in CLI11's order, the last argument first
  std::vector<std::string> notes;  // they tell of flags without effect
};

// Returns the arguments without the program's name. "help COMMAND" becomes "COMMAND --help", and
// flags of llama.cpp without effect are removed (cli/other_flags.h). Throws usage for -hf and
// similar flags, which CLI11 would read as `-h f`.
Arguments parser_arguments(const CLI::App& root, int argc, const char* const* argv);

// Returns what is wrong with a command line that the parser rejects.
std::string problem_text(const CLI::ParseError& error);

// Returns the first argument that no command accepts.
std::string unexpected_text(const CLI::App& root);

}  // namespace walsh::cli
