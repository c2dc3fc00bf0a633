// What was typed, as the parser takes it, and what is said of what it does not take.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace walsh::cli {

// Every flag gets one value each time it is given: one that took further ones would have the MODEL
// of `--api-key KEY MODEL`.
void limit_to_one_value(CLI::App& command);

struct Arguments {
  std::vector<std::string> texts;  // in the order that CLI11 takes, the last one first
  std::vector<std::string> notes;  // on flags that change nothing
};

// The arguments without the program's name. "help COMMAND" becomes "COMMAND --help", and flags of
// llama.cpp that change nothing are taken out (cli/other_flags.h). Throws usage for -hf and the
// like, which CLI11 would take for `-h f`.
Arguments parser_arguments(const CLI::App& root, int argc, const char* const* argv);

// Of arguments that nobody takes: the first one.
std::string unexpected_text(const CLI::App& root);

}  // namespace walsh::cli
