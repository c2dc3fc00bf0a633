// Prepares the arguments for the parser (cli/parser.h).
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace walsh::cli {

struct Arguments {
  std::vector<std::string> texts;
  std::vector<std::string> notes;  // they tell of flags without effect
};

// Returns the arguments without the program's name. "help COMMAND" becomes "COMMAND --help", and
// flags of llama.cpp without effect are removed (take_other_flags). Throws usage for -hf and
// similar flags, which the parser would read as `-h f`.
Arguments parser_arguments(const Command& program, int argc, const char* const* argv);

// Removes flags of llama.cpp that have no effect here, and that `command` does not have, from its
// arguments after `first`. Returns a note for each, in the order they were typed.
std::vector<std::string> take_other_flags(const Command& command, size_t first,
                                          std::vector<std::string>& arguments);

}  // namespace walsh::cli
